// Made by scripts/generate.mjs from docs/openapi.json. Do not edit.

export interface components {
    schemas: {
        /** @description The accepted send, or the open send to which the message was delivered. */
        AcceptedSend: components["schemas"]["SendView"] & {
            /**
             * @description The item in the session's inbox, if the message was delivered to an open send (`on_busy`). Absent if
             *     an earlier request with the same key delivered it.
             */
            inbox_item?: components["schemas"]["InboxItem"];
        };
        /** @description A member that differs. */
        AgentChange: {
            /** @description The new value; absent if it was removed. */
            after?: unknown;
            /** @description The old value; absent if it was added. */
            before?: unknown;
            /** @description A JSON pointer into the spec, or into `/limits`, the agent's limits. */
            pointer: string;
        };
        /** @description The differences between two versions of an agent. */
        AgentDiff: {
            /** @description The differences, ordered by pointer. */
            changes: components["schemas"]["AgentChange"][];
            /**
             * Format: int32
             * @description The number of the first version; 0 if the agent would be new.
             */
            from: number;
            /** @description The agent. */
            name: string;
            /**
             * Format: int32
             * @description The number of the other.
             */
            to: number;
        };
        /** @description Limits of a published agent, in any version, in addition to those of its tenant. */
        AgentLimits: {
            /**
             * Format: int32
             * @description Maximum unfinished sends of this agent created by requests; unlimited when absent.
             */
            sends_open?: number | null;
            /**
             * Format: int32
             * @description Maximum sends of this agent in flight on all workers together; others wait. Unlimited when absent.
             */
            sends_running?: number | null;
            /**
             * Format: int64
             * @description Tokens, input and output, that its model calls may use per day (UTC); unlimited when absent.
             */
            tokens_per_day?: number | null;
            /**
             * Format: int64
             * @description The same of a calendar month.
             */
            tokens_per_month?: number | null;
            /**
             * Format: double
             * @description US dollars that its model calls of a day, in UTC, may cost; unlimited when absent.
             */
            usd_per_day?: number | null;
            /**
             * Format: double
             * @description US dollars that the model calls that it begins in a minute may cost; others wait. Unlimited when absent.
             */
            usd_per_minute?: number | null;
            /**
             * Format: double
             * @description The same of a calendar month.
             */
            usd_per_month?: number | null;
        };
        /** @description A version of an agent that something took. */
        AgentRef: {
            /** @description The agent. */
            name: string;
            /**
             * Format: int32
             * @description The number of its version.
             */
            version: number;
        };
        /**
         * @description How a session's model is called. Versioned: a send keeps the version that was
         *     current when it started.
         */
        AgentSpec: {
            /** @description Narrows the tools to those with these names: a child gets no more than its parent has. */
            allow?: string[] | null;
            /**
             * @description The published agents that it may start as children and leaves: `NAME` for all versions, or
             *     `NAME@VERSION` or `NAME@ALIAS` for just what is written so.
             */
            allow_agents?: string[];
            /**
             * @description The board that it shares with all agents that name the same; by default that of its
             *     tree of sessions.
             */
            board?: string | null;
            budget?: components["schemas"]["Budget"] | null;
            /** @description What the model sees of the transcript. */
            context?: components["schemas"]["ContextSpec"];
            /**
             * @description Models to call instead, in this order, when `model` is not available: its provider is down, rejects the key or
             *     limits the rate for longer than a worker waits in memory. At most four.
             */
            fallback?: string[];
            /** @description Where those of its tools run that reach beyond the database. */
            isolation?: components["schemas"]["Isolation"];
            /**
             * Format: int32
             * @description Maximum number of rounds of one send.
             */
            max_rounds?: number | null;
            /**
             * Format: int32
             * @description Maximum number of tokens of one answer.
             */
            max_tokens?: number | null;
            memory?: components["schemas"]["MemorySpec"] | null;
            /** @description `MODEL` of the default provider, or `PROVIDER/MODEL`. */
            model?: string | null;
            /**
             * @description Further members of model requests, for what only some providers offer: an object of at most 16 KiB of JSON.
             *     Members that have a setting of their own are refused.
             */
            model_options?: {
                [key: string]: unknown;
            } | null;
            /** @description A label to filter by. */
            name?: string | null;
            notes?: components["schemas"]["NotesSpec"] | null;
            /**
             * @description The schema of final answers: a JSON Schema, or `{name, schema, strict}`; `{"type": "json_object"}` for any
             *     JSON object.
             */
            output_schema?: {
                [key: string]: unknown;
            } | null;
            /** @description Whether one answer may have several calls; the provider's default when absent. */
            parallel_tool_calls?: boolean | null;
            /** @description The workers that may run it; `default` when absent. */
            pool?: string | null;
            prompt?: components["schemas"]["PromptSpec"] | null;
            reasoning_effort?: components["schemas"]["ReasoningEffort"] | null;
            /** @description What to do with an interrupted round. */
            recovery?: components["schemas"]["Recovery"];
            /**
             * @description Skills that its model may read, `NAME` or `NAME@HASH`. A bare name means its current version when
             *     the agent is stored, and that version from then on.
             */
            skills?: string[];
            /** @description Texts that end an answer before them, at most four. The answer counts as complete. */
            stop?: string[];
            /** @description Instructions for the model, before the transcript. */
            system_prompt?: string | null;
            /**
             * Format: double
             * @description Passed to the provider as it is.
             */
            temperature?: number | null;
            thinking?: components["schemas"]["ThinkingSpec"] | null;
            tool_choice?: components["schemas"]["ToolChoice"] | null;
            /** @description Tools on offer: presets and names of tools that the workers have, and tools declared here. */
            tools?: components["schemas"]["ToolEntry"][];
            /**
             * Format: double
             * @description Passed to the provider as it is.
             */
            top_p?: number | null;
        };
        /** @description A version of an agent, as it is shown. */
        AgentVersion: {
            /**
             * Format: date-time
             * @description When it was published.
             */
            created_at: string;
            /** @description SHA-256 of its spec's canonical JSON, as 64 hex digits. */
            hash: string;
            /** @description The agent. */
            name: string;
            /** @description What it is. */
            spec: components["schemas"]["AgentSpec"];
            /**
             * Format: int32
             * @description Its number, from 1.
             */
            version: number;
        };
        /** @description Where an alias is to point. */
        AliasBody: {
            /**
             * Format: int32
             * @description The number of the version.
             */
            version: number;
        };
        /** @description A result that replaces a node's. */
        AmendBody: {
            /** @description The value that replaces the node's. */
            output?: unknown;
            /** @description The text that replaces the node's. */
            text?: string;
        };
        /** @description An API key. */
        ApiKey: {
            binding?: components["schemas"]["Binding"] | null;
            /**
             * Format: date-time
             * @description When it was created.
             */
            created_at: string;
            /**
             * Format: date-time
             * @description From when on it is refused; never if null.
             */
            expires_at?: string | null;
            /** @description Its id. */
            id: string;
            /**
             * @description The token. Only in the response that creates or rotates it, and not in a repeated one
             *     (`Idempotency-Replayed`): it is stored nowhere.
             */
            key?: string | null;
            /**
             * Format: date-time
             * @description When it was last used, to the minute.
             */
            last_used_at?: string | null;
            /** @description Its limits, in addition to those of its tenant. */
            limits: components["schemas"]["KeyLimits"];
            /** @description A label for people. */
            name: string;
            /** @description The prefix of its token. */
            prefix: string;
            /**
             * Format: date-time
             * @description Until when the secret before the last rotation is accepted.
             */
            previous_until?: string | null;
            /**
             * Format: date-time
             * @description When it was revoked.
             */
            revoked_at?: string | null;
            /** @description What it allows; `admin` includes the others, except `operate`. */
            scopes: components["schemas"]["Scope"][];
            /** @description The tenant that it acts for. */
            tenant: string;
        };
        /**
         * @description What a call asks for.
         * @enum {string}
         */
        Asked: "permission" | "answer";
        /** @description What a tool asks while its call is made. */
        Asks: {
            /** @description What a person reads. */
            message: string;
            /**
             * @description `form`, answered with `{"action": "accept", "content": {…}}`, or `url`, answered with `{"action": "accept"}`
             *     when the person has opened the address; both also with the actions `decline` and `cancel`.
             */
            mode: string;
            /** @description Its number among the questions of the call, which the answer names. */
            question: number;
            /** @description The schema of the content, with text, number, boolean and choice members. */
            requested_schema?: {
                [key: string]: unknown;
            } | null;
            /** @description The address to open. The tool chose it, so show it before it is opened. */
            url?: string | null;
        };
        /**
         * @description Something that a provider attached to an answer and wants back. It goes back unchanged to whoever attached
         *     it, and to nobody else.
         */
        Attached: {
            /** @description The JSON text, as it came; U+0000 occurs in it only escaped. */
            json: string;
            /** @description Who attached it. */
            origin: components["schemas"]["Origin"];
        };
        /** @description An earlier attempt of a leaf. */
        Attempt: {
            /**
             * Format: int32
             * @description Its number, counted from 1.
             */
            attempt: number;
            error?: components["schemas"]["Failure"] | null;
            /** @description Its send. */
            send_id?: string | null;
            /** @description Its session. */
            session_id?: string | null;
        };
        /** @description Sends to accept in one request. */
        BatchBody: {
            /** @description At most 1000. */
            sends: components["schemas"]["BatchSend"][];
        };
        /** @description The outcome of one item: it has either `send` or `problem`. */
        BatchResult: {
            problem?: components["schemas"]["Problem"] | null;
            send?: components["schemas"]["AcceptedSend"] | null;
            /**
             * Format: int32
             * @description The status that the item alone would have been answered with.
             */
            status: number;
        };
        /** @description The schema of an answer. */
        BatchResults: {
            /** @description One per item, in order. */
            results: components["schemas"]["BatchResult"][];
        };
        /** @description A send to a session that exists or is created with it. */
        BatchSend: {
            /** @description Idempotency key of this item. Only in a batch; otherwise it is a header. */
            idempotency_key?: string | null;
            input: string | components["schemas"]["InputPart"][];
            options?: components["schemas"]["SendOptions"] | null;
            session?: components["schemas"]["SendSession"] | null;
            /** @description A session that exists. */
            session_id?: string | null;
        };
        /** @description A timer to create. */
        BatchTimer: {
            /** @description How long from now: once, or with `every` the first time. */
            after?: string | null;
            /**
             * Format: date-time
             * @description When it is due: once, or with `every` the first time.
             */
            at?: string | null;
            catch_up?: components["schemas"]["CatchUp"] | null;
            /** @description A cron expression: five fields starting with minutes, or six with seconds first. */
            cron?: string | null;
            /** @description A fixed rate, at least `1s`. */
            every?: string | null;
            /** @description Idempotency key of this item. Only in a batch; otherwise it is a header. */
            idempotency_key?: string | null;
            input?: string | components["schemas"]["InputPart"][];
            /** @description Each occurrence is delayed by less than this; at most `1d`. */
            jitter?: string | null;
            /**
             * Format: int32
             * @description Maximum number of occurrences.
             */
            max_occurrences?: number | null;
            on_busy?: components["schemas"]["Merge"] | null;
            options?: components["schemas"]["SendOptions"] | null;
            run?: components["schemas"]["RunBody"] | null;
            /** @description The session that it sends to, under that session's own agent. */
            session_id?: string | null;
            /** @description The calendar's time zone, such as `Europe/Berlin`; `UTC` when absent. */
            timezone?: string | null;
            /**
             * Format: date-time
             * @description Nothing is due after this.
             */
            until?: string | null;
        };
        /**
         * @description What a key is bound to. Anything outside does not exist for the key, and cannot be created with it. An absent member
         *     does not restrict the key.
         */
        Binding: {
            /** @description Published agents: sessions have one of these, and no others can be named. */
            agents?: string[];
            /** @description Metadata that sessions must have, each member with exactly this text. Sessions that the key creates get it. */
            metadata?: {
                [key: string]: string;
            };
            /** @description The memory namespace, with all below it; sessions whose agents use another namespace are outside. */
            namespace?: string | null;
        };
        /** @description A blob as rows and messages name it. */
        BlobRef: {
            /**
             * Format: int64
             * @description Its length.
             */
            bytes: number;
            /** @description Like `image/png`. */
            media_type: string;
            /** @description The SHA-256 of its bytes. */
            sha256: string;
        };
        /** @description Spending limits, as users write them. Absent members are unlimited. */
        Budget: {
            /**
             * Format: int32
             * @description Model calls, including those of children.
             */
            rounds?: number | null;
            /**
             * Format: int64
             * @description Tokens, read and written.
             */
            tokens?: number | null;
            /**
             * Format: double
             * @description US dollars, by the price table of the workers.
             */
            usd?: number | null;
            /** @description From the start of a send, including waits. */
            wall?: string | null;
        };
        /** @description What a provider attached to a call, besides its name and arguments. */
        CallAttached: {
            /** @description The call's id as the provider gave it. */
            id?: string | null;
            /** @description Further members of the call, as the text of a JSON object. */
            json?: string | null;
            /** @description Who made the call. */
            origin: components["schemas"]["Origin"];
        };
        /** @description A tool call. */
        CallEvent: {
            /** @description Any JSON. */
            arguments?: unknown;
            /** @description The call. */
            id: string;
            /** @description The tool. */
            name: string;
            /** @description The part that the model sees. */
            result?: components["schemas"]["ContentPart"][];
            /** @description Its send. */
            send_id: string;
        };
        /** @description Options of a cancellation. */
        CancelRunBody: {
            /** @description For people. */
            reason?: string | null;
        };
        /**
         * @description What to do with occurrences that did not fire when they were due.
         * @enum {string}
         */
        CatchUp: "skip" | "once" | "all";
        /** @description A typed part of a message. */
        ContentPart: components["schemas"]["TextPart"] | components["schemas"]["ReasoningPart"] | components["schemas"]["ImagePart"] | components["schemas"]["FilePart"];
        /** @description A hypothetical send. */
        ContextBody: {
            input: string | components["schemas"]["InputPart"][];
            options?: components["schemas"]["SendOptions"] | null;
            /** @description Adds the request as its provider would get it. */
            request?: boolean;
        };
        /** @description What the model sees of the transcript. */
        ContextSpec: {
            /** @description How what the model's window has no room for is folded. */
            fold?: components["schemas"]["FoldSpec"];
            /** @description Which pictures and files are shown again with later rounds. */
            images?: components["schemas"]["ImagesSpec"];
            /**
             * Format: int32
             * @description Maximum number of the last messages when a send starts, its input included; all of them when absent. To preserve
             *     providers' prompt caches, the window moves in blocks: once the limit is exceeded, by half of it. The send's own
             *     messages come on top.
             */
            last_messages?: number | null;
            /** @description What to do with an answer that was truncated at its token limit. */
            on_truncation?: components["schemas"]["OnTruncation"];
            /** @description How sends that have ended are shown. */
            representation?: components["schemas"]["Representation"];
            /** @description How older results of these tools are shown; unchanged by default. */
            tools?: {
                [key: string]: components["schemas"]["ToolContext"];
            };
        };
        /** @description A tool that an agent declares by itself. */
        DeclaredTool: components["schemas"]["HttpTool"] | components["schemas"]["ExternalTool"] | components["schemas"]["McpTools"] | components["schemas"]["WorkerTool"];
        /**
         * @description The status of a delivery.
         * @enum {string}
         */
        DeliveryStatus: "pending" | "delivered" | "dead";
        /** @description A part of an answer. Parts of an older attempt are void. */
        DeltaEvent: {
            /** @description The attempt within it. */
            attempt: number;
            /** @description Number of characters of this attempt before this delta. */
            offset: number;
            /** @description The round. */
            round: number;
            /** @description Its send. */
            send_id: string;
            /** @description The piece. */
            text: string;
        };
        /** @description What a page shows. */
        Entry: components["schemas"]["Message"] | components["schemas"]["FoldEntry"];
        /** @description The wish to erase a tenant. */
        EraseTenantBody: {
            /** @description The tenant's name: what is erased cannot be brought back, so that a wrong number must not be enough. */
            name: string;
        };
        /** @description What an erasure did. */
        ErasedView: {
            /**
             * Format: int64
             * @description Entries that were deleted.
             */
            deleted: number;
        };
        /** @description An erasure that happened. */
        Erasure: {
            /** @description Who requested it: the id of an API key, or `operator`. Absent for erasures by older releases. */
            by?: string | null;
            /**
             * Format: int64
             * @description Entries that were deleted.
             */
            deleted: number;
            /**
             * Format: date-time
             * @description When it ended, or got as far as it did.
             */
            erased_at: string;
            /** @description Its identity. */
            id: string;
            /** @description SHA-256 of the namespace's name, as hexadecimal digits: those who know the name can find it. */
            namespace_sha256: string;
        };
        /** @description A tool that the caller runs. */
        ExternalTool: {
            /** @description Whether a person has to approve each call. */
            approval?: boolean;
            /**
             * @description How long to wait for a result, from when it is asked for: after the approval, if there is one. Forever if not
             *     set.
             */
            deadline?: string | null;
            /** @description The description for the model. */
            description?: string;
            /** @description The name that the model calls it by. */
            name: string;
            /** @description The JSON Schema of its arguments; any object when absent. */
            parameters?: {
                [key: string]: unknown;
            };
            /** @description The workers that sends of an agent with it run on. */
            pool?: string | null;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "external";
        };
        /**
         * @description What an agent remembers automatically.
         * @enum {string}
         */
        ExtractMode: "off" | "after_send";
        /** @description A failure as stored with a send: without secrets or texts of drivers. */
        Failure: {
            /** @description The stable code. */
            code: string;
            /** @description One sentence for people. */
            message: string;
        };
        /**
         * @description The outcome of an occurrence.
         * @enum {string}
         */
        Fate: "fired" | "merged" | "skipped" | "failed";
        /** @description What is wrong with one member of a request. */
        FieldError: {
            /** @description A message for people. */
            detail: string;
            /**
             * @description A JSON pointer into the body, preceded by `LINE:` in a body of JSON lines; for a query parameter or a
             *     header, its name preceded by `?` or `#`.
             */
            pointer: string;
        };
        /** @description A stored blob, read when the model is called. */
        FileBlob: {
            /**
             * Format: int64
             * @description Its bytes, at most 10 MiB.
             */
            bytes?: number;
            /** @description Like `application/pdf`; content of a type `text/…` is shown as text. */
            media_type?: string;
            /** @description The SHA-256 of its bytes. */
            sha256: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "blob";
        };
        /** @description Bytes, which not every provider accepts: both accept `application/pdf`. */
        FileBytes: {
            /** @description Its bytes in base64, at most 10 MiB before encoding. */
            data: string;
            /** @description Like `application/pdf`. */
            media_type: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "base64";
        };
        /** @description A file with its name. */
        FilePart: {
            /** @description What it is called. */
            name: string;
            /** @description What is in it. */
            source: components["schemas"]["FileSource"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "file";
        };
        /** @description What is in a file. */
        FileSource: components["schemas"]["FileText"] | components["schemas"]["FileBytes"] | components["schemas"]["FileBlob"];
        /** @description Words. */
        FileText: {
            /** @description The text, at most 10 MiB. */
            text: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "text";
        };
        /** @description A text that replaces a range of messages. */
        Fold: {
            /**
             * Format: int64
             * @description The fold that covers it: it is not shown any more.
             */
            covered_by?: number | null;
            /**
             * Format: date-time
             * @description When, by the database's clock.
             */
            created_at: string;
            /**
             * Format: int64
             * @description The first message that it covers. In a copy of a session, zero or less for messages that had been removed
             *     before.
             */
            from_seq: number;
            /** @description How it was made. */
            kind: components["schemas"]["FoldKind"];
            /**
             * Format: int32
             * @description 0, or one more than the highest of the folds that it covers.
             */
            level: number;
            /** @description The model that wrote it, if one did. */
            model?: string | null;
            /**
             * Format: int64
             * @description Its number in the session: the session's `context_version` from its attachment on.
             */
            n: number;
            /** @description The send that it was attached in. */
            send_id: string;
            /** @description The text. */
            text: string;
            /**
             * Format: int64
             * @description The last one.
             */
            to_seq: number;
            /**
             * Format: int64
             * @description About how many tokens it takes.
             */
            tokens_after: number;
            /**
             * Format: int64
             * @description Estimated tokens of the messages and folds that it covers.
             */
            tokens_before: number;
        };
        /** @description The text that the model sees instead of the earlier messages. */
        FoldEntry: components["schemas"]["Fold"] & {
            /** @description Tells it from messages. */
            role: components["schemas"]["FoldRole"];
        } & {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            role: "fold";
        };
        /**
         * @description How a fold was made.
         * @enum {string}
         */
        FoldKind: "summary" | "agentic" | "projection" | "http" | "custom";
        /**
         * @description The role of a fold, which no message has.
         * @enum {string}
         */
        FoldRole: "fold";
        /** @description When and how parts of the transcript are folded. */
        FoldSpec: {
            /**
             * Format: double
             * @description Share of the budget above which a fold is made before the model is called; 0.85 when absent.
             */
            hard?: number | null;
            /**
             * Format: int32
             * @description The newest sends, which are not folded; 4 when absent.
             */
            keep_sends?: number | null;
            /** @description The model that writes it, if it is not the agent's. */
            model?: string | null;
            /**
             * Format: double
             * @description Share of the context's budget above which a fold is made in the background; 0.6 when absent. The budget is the
             *     model's window without its answer and a reserve.
             */
            soft?: number | null;
            /** @description How. */
            strategy?: components["schemas"]["FoldStrategy"];
            /** @description The service of strategy `http`. */
            url?: string | null;
        };
        /**
         * @description How what the model's window has no room for is folded.
         * @enum {string}
         */
        FoldStrategy: "none" | "summary" | "agentic" | "projection" | "http";
        /**
         * @description When something is folded.
         * @enum {string}
         */
        FoldWhen: "before" | "beside" | "after";
        /** @description Options of a fork; all of them have defaults. */
        ForkBody: {
            agent?: null | string | components["schemas"]["AgentSpec"];
            /** @description Replaces the metadata. `forked_from` is set in either case. */
            metadata?: {
                [key: string]: unknown;
            } | null;
            /**
             * Format: int64
             * @description The last message to copy; by default the last one up to which every call has its result.
             */
            seq?: number | null;
            /** @description Replaces the values of the agent's variables. */
            variables?: {
                [key: string]: unknown;
            } | null;
        };
        /** @description An HTTP tool. */
        HttpTool: {
            /** @description Whether a person has to approve each call. */
            approval?: boolean;
            /** @description The description for the model. */
            description?: string;
            /** @description A template of `arguments` and `output` that says in one line what is left of a call once it is old. */
            digest?: string | null;
            /** @description The name that the model calls it by. */
            name: string;
            /** @description Whether it may run in parallel with other calls of its round. */
            parallel?: boolean;
            /** @description The JSON Schema of its arguments; any object when absent. */
            parameters?: {
                [key: string]: unknown;
            };
            /** @description The workers that can call it; sends of an agent with it run there. */
            pool?: string | null;
            /**
             * @description Whether a call that may have been made is made again, after a crash of its worker or a failed attempt. `keyed`
             *     when absent: up to three attempts under one `Idempotency-Key`, which your service has to remember. `once` for
             *     whatever must not happen twice in a service that does not.
             */
            repeat?: components["schemas"]["Repeat"];
            /** @description How long one attempt may take; 60 seconds when absent. */
            timeout?: string | null;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "http";
            /**
             * Format: uri
             * @description Where it is called.
             */
            url: string;
        };
        /** @description Where the provider fetches it. */
        ImageAddress: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "url";
            /** @description An `https` address. */
            url: string;
        };
        /** @description A stored blob, read when the model is called. */
        ImageBlob: {
            /**
             * Format: int64
             * @description Its bytes, at most 5 MiB.
             */
            bytes?: number;
            /** @description `image/png`, `image/jpeg`, `image/gif` or `image/webp`. */
            media_type?: string;
            /** @description The SHA-256 of its bytes. */
            sha256: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "blob";
        };
        /** @description Here. */
        ImageBytes: {
            /** @description Its bytes in base64, at most 5 MiB before encoding. */
            data: string;
            /** @description `image/png`, `image/jpeg`, `image/gif` or `image/webp`. */
            media_type: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "base64";
        };
        /** @description An image. */
        ImagePart: {
            /** @description Where it is. */
            source: components["schemas"]["ImageSource"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "image";
        };
        /** @description Where a picture is. */
        ImageSource: components["schemas"]["ImageBytes"] | components["schemas"]["ImageBlob"] | components["schemas"]["ImageAddress"];
        /**
         * @description Which pictures and files of the window a model call contains, and how large. Others are replaced by a
         *     line that says what they were.
         */
        ImagesSpec: {
            /**
             * Format: int32
             * @description The newest ones that are always shown; all are shown when null, and each only until the model has
             *     answered when 0. To keep providers' prompt caches of use, older ones go in blocks: once there are twice
             *     as many, as many of them.
             */
            keep?: number | null;
            /**
             * Format: int32
             * @description The maximum edge of pictures in pixels, from 64 to 8192: larger ones are scaled down, except those that the
             *     provider fetches. Unchanged when absent.
             */
            max_edge?: number | null;
        };
        /**
         * @description The outcome of an item.
         * @enum {string}
         */
        InboxFate: "pending" | "delivered" | "void";
        /** @description An item as stored and as the API shows it. */
        InboxItem: {
            /** @description What it says. */
            content: components["schemas"]["ContentPart"][];
            /**
             * Format: date-time
             * @description When it was accepted.
             */
            created_at: string;
            /** @description Its outcome. */
            fate: components["schemas"]["InboxFate"];
            /** @description Unique within the session. */
            id: string;
            /** @description Where it comes from. */
            kind: components["schemas"]["ItemKind"];
            /** @description How it was sent. */
            mode: components["schemas"]["OnBusy"];
            /**
             * Format: int64
             * @description Its position among the session's items, which are delivered in this order.
             */
            n: number;
            /** @description The send that it was accepted into. */
            send_id?: string | null;
            /**
             * Format: int64
             * @description The message that it became.
             */
            seq?: number | null;
            /**
             * Format: date-time
             * @description When its fate was sealed.
             */
            settled_at?: string | null;
        };
        /** @description A part of a message's content. */
        InputPart: components["schemas"]["TextPart"] | components["schemas"]["ImagePart"] | components["schemas"]["FilePart"];
        /**
         * @description Where those of an agent's tools run that reach beyond the database: files, the shell, HTTP and MCP.
         * @enum {string}
         */
        Isolation: "none" | "process";
        /**
         * @description Where an item comes from.
         * @enum {string}
         */
        ItemKind: "message" | "child" | "late_result";
        /** @description Limits of an API key, in addition to those of its tenant. */
        KeyLimits: {
            /**
             * Format: int32
             * @description Maximum requests per second with this key, over all schedulers, which divide them evenly; unlimited when absent.
             */
            requests_per_second?: number | null;
            /**
             * Format: int32
             * @description Maximum open sends created with this key; unlimited when absent.
             */
            sends_open?: number | null;
        };
        /** @description What a tenant may use. */
        Limits: {
            /**
             * Format: int64
             * @description Bytes of its blobs; unlimited when absent.
             */
            bytes?: number | null;
            /**
             * Format: int32
             * @description Maximum leaves of runs in flight; others wait. Unlimited when absent.
             */
            leaves_running?: number | null;
            /**
             * Format: int32
             * @description Maximum requests per second, over all schedulers, which divide them evenly; unlimited when absent.
             */
            requests_per_second?: number | null;
            /**
             * Format: int32
             * @description Maximum unfinished sends created by its requests; unlimited when absent.
             */
            sends_open?: number | null;
            /**
             * Format: int32
             * @description Maximum sends in flight on all workers together, leaves of runs included; others wait. Unlimited when absent.
             */
            sends_running?: number | null;
            /**
             * Format: int64
             * @description Tokens, input and output, that its model calls may use per day (UTC); unlimited when absent.
             */
            tokens_per_day?: number | null;
            /**
             * Format: int64
             * @description Tokens that its model calls may take in a minute before its sends are refused; unlimited when absent.
             */
            tokens_per_minute?: number | null;
            /**
             * Format: int64
             * @description The same of a calendar month.
             */
            tokens_per_month?: number | null;
            /**
             * Format: double
             * @description US dollars that its model calls of a day, in UTC, may cost; unlimited when absent.
             */
            usd_per_day?: number | null;
            /**
             * Format: double
             * @description US dollars that the model calls that it begins in a minute may cost; others wait. Unlimited when absent.
             */
            usd_per_minute?: number | null;
            /**
             * Format: double
             * @description The same of a calendar month.
             */
            usd_per_month?: number | null;
        };
        /** @description A worker has claimed the send. */
        LiveEvent: {
            /** @description Its send. */
            send_id: string;
        };
        /** @description Tools of an MCP server. */
        McpTools: {
            /** @description Whether a person has to approve each call. */
            approval?: boolean;
            /** @description The workers that are configured with it; sends of an agent with it run there. */
            pool?: string | null;
            /** @description Put before each tool's name. */
            prefix?: string;
            /** @description Whether the model can list and read the server's prompts. */
            prompts?: boolean;
            /** @description Whether the model can list and read the server's resources. */
            resources?: boolean;
            /** @description The server's name under `[mcp.NAME]` in the workers' configuration. */
            server: string;
            /** @description The server's tools on offer; all when absent. */
            tools?: string[] | null;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "mcp";
        };
        /** @description Changes of an entry; absent members stay as they are. */
        MemoryChangeBody: {
            /**
             * Format: date-time
             * @description Replaces the time at which it is forgotten by itself; null keeps it for good.
             */
            expires_at?: string | null;
            /** @description Replaces the metadata. */
            metadata?: {
                [key: string]: unknown;
            } | null;
            /** @description Replaces the text. */
            text?: string | null;
        };
        /** @description Something remembered. */
        MemoryEntry: {
            /**
             * Format: date-time
             * @description When it was written.
             */
            created_at: string;
            /** @description Conversations that it came from before, the latest ones last. */
            earlier_sources?: components["schemas"]["MemorySource"][];
            /**
             * Format: date-time
             * @description When it is forgotten by itself.
             */
            expires_at?: string | null;
            /** @description Its identity. */
            id: string;
            /** @description The writer's data. */
            metadata?: {
                [key: string]: unknown;
            };
            /** @description Where it belongs. */
            namespace: string;
            source?: components["schemas"]["MemorySource"] | null;
            /** @description What is remembered. */
            text: string;
            /**
             * Format: date-time
             * @description When it last changed.
             */
            updated_at: string;
        };
        /** @description The messages that an entry was made of. */
        MemorySource: {
            /**
             * Format: int64
             * @description The first message; absent if a tool wrote the entry.
             */
            from_seq?: number | null;
            /** @description The send during or after which it was written. */
            send_id: string;
            /** @description The session. */
            session_id: string;
            /**
             * Format: int64
             * @description The last message.
             */
            to_seq?: number | null;
        };
        /** @description What an agent remembers beyond its session, and how. */
        MemorySpec: {
            /**
             * Format: int32
             * @description Tokens of memory that a send is shown at most.
             */
            budget_tokens?: number;
            /** @description What is remembered automatically. */
            extract?: components["schemas"]["ExtractMode"];
            /**
             * @description The model that extracts; by default the one that the workers' configuration names, else the
             *     send's own.
             */
            extract_model?: string | null;
            /**
             * @description The memory of agents that it starts: `.` for the same namespace, or a path below it. Without it
             *     they have none.
             */
            grants?: string | null;
            /**
             * @description The namespace: a path like `user/{{metadata.user_id}}`, rendered from the session's `metadata` and `session_id`
             *     when a send starts. A value never extends beyond its segment of the path.
             */
            namespace: string;
            /** @description Who keeps it: `builtin`, or a name under `[memory]` in the workers' configuration. */
            provider?: string;
            /** @description How it is found again. */
            recall?: components["schemas"]["RecallMode"];
        };
        /** @description The memory that a send uses, as the API shows it. */
        MemoryView: {
            /** @description The entries that the model was shown, the best first. */
            entries: string[];
            /** @description The namespace; null if it could not be rendered, and the send had no memory. */
            namespace?: string | null;
            /** @description Why there are no entries, if something failed. */
            note?: string | null;
            /** @description Who keeps it. */
            provider: string;
            /**
             * Format: int64
             * @description Tokens of them, estimated.
             */
            tokens: number;
        };
        /**
         * @description What to do with an occurrence while the previous one's send is still queued.
         * @enum {string}
         */
        Merge: "coalesce" | "enqueue";
        /** @description A message as stored and as the API shows it. */
        Message: {
            /** @description The text. */
            content: components["schemas"]["ContentPart"][];
            /**
             * Format: date-time
             * @description When its transaction ran, by the database's clock.
             */
            created_at: string;
            /** @description Whether the tool failed; only on a tool's message. */
            failed?: boolean;
            /** @description The tool's name; only on a tool's message. */
            name?: string | null;
            /**
             * @description Who speaks. (enum property replaced by openapi-typescript)
             * @enum {string}
             */
            role: "assistant" | "tool" | "user";
            /**
             * Format: int32
             * @description The round within its send, from 0.
             */
            round: number;
            /** @description The send that wrote it. */
            send_id: string;
            /**
             * Format: int64
             * @description The place in the session, from 1, without gaps.
             */
            seq: number;
            /** @description The call that this answers; only on a tool's message. */
            tool_call_id?: string | null;
            /** @description The requested tool calls; only on an assistant's message. */
            tool_calls?: components["schemas"]["ToolCall"][];
        };
        /** @description The cost of one model's calls. */
        ModelUsage: {
            /**
             * Format: int64
             * @description Its responses, including incomplete ones.
             */
            calls: number;
            /** @description The requested model. */
            model: string;
            /** @description Their total cost. */
            usage: components["schemas"]["Usage"];
        };
        /** @description An agent, as it is shown. */
        NamedAgent: {
            /** @description The versions that its aliases point at. */
            aliases: {
                [key: string]: number;
            };
            /**
             * Format: date-time
             * @description When it was archived; null while it can be used.
             */
            archived_at?: string | null;
            /**
             * Format: date-time
             * @description When it was published first.
             */
            created_at: string;
            /** @description Its limits. */
            limits?: components["schemas"]["AgentLimits"];
            /** @description Its name. */
            name: string;
            /**
             * Format: date-time
             * @description When a version was added, an alias or a limit changed, or it was archived or restored.
             */
            updated_at: string;
            /**
             * Format: int32
             * @description The number of its newest version.
             */
            version: number;
        };
        /** @description An agent to publish. */
        NewAgentBody: {
            limits?: components["schemas"]["AgentLimits"] | null;
            /** @description Its name: 1 to 64 of the characters `a-z`, `A-Z`, `0-9`, `.`, `_` and `-`. */
            name: string;
            /** @description What it is to be. Its `name` may be left out. */
            spec: components["schemas"]["AgentSpec"];
        };
        /** @description A key to create, for the caller's tenant. */
        NewKeyBody: {
            binding?: components["schemas"]["Binding"] | null;
            /**
             * Format: date-time
             * @description From when on it is refused; never if absent.
             */
            expires_at?: string | null;
            /** @description Its limits, in addition to those of its tenant; none when absent. */
            limits?: components["schemas"]["KeyLimits"];
            /** @description A label for people, at most 100 characters; if absent, the scopes joined with `+`, like `read+send`. */
            name?: string | null;
            /** @description What it allows, at least one. */
            scopes: components["schemas"]["Scope"][];
            /** @description The tenant, for operators; the caller's if absent. */
            tenant?: string | null;
        };
        /** @description An entry to enter. */
        NewMemoryBody: {
            /**
             * Format: date-time
             * @description When it is forgotten by itself.
             */
            expires_at?: string | null;
            /** @description The writer's data: an object, at most 8 KiB of JSON. */
            metadata?: {
                [key: string]: unknown;
            } | null;
            /** @description Its namespace: a path like `user/42`. */
            namespace: string;
            /** @description What is remembered. */
            text: string;
        };
        /** @description A run to start. */
        NewRunBody: {
            /** @description The value of `input`; the spec's own where absent. */
            input?: unknown;
            options?: components["schemas"]["RunOptions"] | null;
            /** @description The session it belongs to: its leaves' sessions are children of that one. */
            session_id?: string | null;
            /** @description A workflow: an object, or a text that holds one as JSON. */
            spec: {
                [key: string]: unknown;
            } | string;
        };
        /** @description A session to create. */
        NewSessionBody: {
            agent?: null | string | components["schemas"]["AgentSpec"];
            /** @description The creator's data: an object, at most 16 KiB of JSON. */
            metadata?: {
                [key: string]: unknown;
            } | null;
            /** @description Values of the variables that the agent's prompt declares. */
            variables?: {
                [key: string]: unknown;
            } | null;
        };
        /** @description A tenant to create. */
        NewTenantBody: {
            /** @description What it may use; everything when absent. */
            limits?: components["schemas"]["Limits"];
            /** @description At most 100 characters, unique among tenants. */
            name: string;
            /** @description Worker pools that it may name; any but other tenants' own when absent. */
            pools?: components["schemas"]["Pools"];
            /** @description For how long what it has is kept; as the installation says when absent. */
            retention?: components["schemas"]["Retention"];
            /**
             * Format: int32
             * @description Scheduling weight relative to other tenants, from 1 to 1000.
             * @default 1
             */
            weight: number;
        };
        /** @description A webhook to create. */
        NewWebhookBody: {
            /** @description Event filters: types like `send.completed`, prefixes like `send.*`, or `*`. */
            events: string[];
            /** @description The signing secret: `whsec_` and the base64 of 24 to 64 bytes; generated if absent. */
            secret?: string | null;
            /** @description URL that events are posted to, `http` or `https`; a public address unless the operator allows others. */
            url: string;
        };
        /** @description A fold that the next call would cause. */
        NextFold: {
            /**
             * Format: int64
             * @description The first message that it would cover, including those of the folds that it replaces.
             */
            from_seq: number;
            /** @description How. */
            strategy: components["schemas"]["FoldStrategy"];
            /**
             * Format: int64
             * @description The last one.
             */
            to_seq: number;
            /**
             * Format: int64
             * @description About how many tokens they take.
             */
            tokens: number;
            /** @description When it would be made. */
            when: components["schemas"]["FoldWhen"];
        };
        /**
         * @description What a node does.
         * @enum {string}
         */
        NodeKind: "agent" | "sequence" | "parallel" | "foreach" | "branch" | "loop" | "wait" | "approval" | "tool" | "workflow";
        /**
         * @description Where a node stands.
         * @enum {string}
         */
        NodeState: "blocked" | "ready" | "queued" | "running" | "waiting" | "completed" | "failed" | "cancelled" | "skipped";
        /** @description A node as the API shows it. */
        NodeView: {
            /** @description Its result was replaced by an operator. */
            amended: boolean;
            /**
             * Format: int32
             * @description The current or last attempt, counted from 1.
             */
            attempt: number;
            /**
             * Format: date-time
             * @description When a pause or the wait before its next attempt is over, or its time is up.
             */
            due_at?: string | null;
            /** @description The attempts before this one. */
            earlier: components["schemas"]["Attempt"][];
            error?: components["schemas"]["Failure"] | null;
            /** @description The spec's name for it. */
            id?: string | null;
            /** @description What it does. */
            kind: components["schemas"]["NodeKind"];
            /**
             * Format: int64
             * @description Counts the run's nodes in the order in which they were reached, from 1.
             */
            n: number;
            /** @description The value it returned. */
            output?: unknown;
            /** @description Its position in the tree. */
            path: string;
            /** @description The send of that attempt. */
            send_id?: string | null;
            /** @description The session of that attempt. */
            session_id?: string | null;
            /**
             * Format: date-time
             * @description When it settled.
             */
            settled_at?: string | null;
            /**
             * Format: date-time
             * @description When it was reached.
             */
            started_at: string;
            /** @description Its state; that of the send for a leaf in flight. */
            state: components["schemas"]["NodeState"];
            /** @description Messages from people while it was running, oldest first. */
            steered: components["schemas"]["Steered"][];
            /** @description What it said. */
            text?: string | null;
            /** @description Its failure does not fail the enclosing node. */
            tolerated: boolean;
            /** @description The sum over its attempts. */
            usage: components["schemas"]["Usage"];
            waiting_on?: components["schemas"]["WaitingOn"] | null;
        };
        /** @description How an agent keeps notes. */
        NotesSpec: {
            /**
             * Format: int32
             * @description Maximum number of notes, at most 50.
             */
            max?: number;
            /** @description What becomes of one more. */
            when_full?: components["schemas"]["WhenFull"];
        };
        /** @description An occurrence as the API shows it. */
        OccurrenceView: {
            /**
             * Format: date-time
             * @description When it was due.
             */
            due_at: string;
            /** @description Its outcome. */
            fate: components["schemas"]["Fate"];
            /**
             * Format: date-time
             * @description When, by the database's clock.
             */
            fired_at: string;
            /**
             * Format: int64
             * @description Its number, counted from 1.
             */
            n: number;
            /** @description The run that it started. */
            run_id?: string | null;
            /** @description The send that it is in. */
            send_id?: string | null;
        };
        /**
         * @description What a send does on a busy session.
         * @enum {string}
         */
        OnBusy: "enqueue" | "coalesce" | "steer" | "interrupt" | "reject";
        /**
         * @description What to do with an answer that was truncated at its token limit. Its calls are never executed: the last of them may
         *     be truncated as well.
         * @enum {string}
         */
        OnTruncation: "continue" | "accept" | "fail";
        /** @description A conversation to continue, in the form of OpenAI's Chat Completions API. */
        OpenAiChatBody: {
            /** @description Not supported. */
            audio?: unknown;
            /**
             * Format: double
             * @description Passed to the provider.
             */
            frequency_penalty?: number | null;
            /** @description Not supported: see `tool_choice`. */
            function_call?: unknown;
            /** @description Not supported: functions are in `tools`. */
            functions?: unknown;
            /** @description Not supported. */
            logit_bias?: unknown;
            /** @description Not supported. */
            logprobs?: unknown;
            /**
             * Format: int32
             * @description The most tokens of the answer.
             */
            max_completion_tokens?: number | null;
            /**
             * Format: int32
             * @description The same.
             */
            max_tokens?: number | null;
            /** @description All that was said so far. */
            messages: {
                [key: string]: unknown;
            }[];
            /** @description The sender's data: at most 16 texts. */
            metadata?: {
                [key: string]: unknown;
            } | null;
            /** @description Only text is answered. */
            modalities?: unknown;
            /** @description `agent/NAME`, `agent/NAME@VERSION` or `agent/NAME@ALIAS` for a published agent, otherwise a provider's model. */
            model?: string | null;
            /** @description Must be 1 if given. */
            n?: unknown;
            /** @description Whether one answer may have several calls. */
            parallel_tool_calls?: boolean | null;
            /** @description Not supported. */
            prediction?: unknown;
            /**
             * Format: double
             * @description Passed to the provider.
             */
            presence_penalty?: number | null;
            /** @description Ignored. */
            prompt_cache_key?: string | null;
            /** @description Ignored. */
            prompt_cache_retention?: unknown;
            /** @description How much to think. */
            reasoning_effort?: string | null;
            /** @description `{type: "text"}`, `{type: "json_object"}` or `{type: "json_schema", json_schema: {name, schema, strict}}`. */
            response_format?: {
                [key: string]: unknown;
            } | null;
            /** @description Ignored. */
            safety_identifier?: string | null;
            /**
             * Format: int64
             * @description Passed to the provider.
             */
            seed?: number | null;
            /** @description Ignored. */
            service_tier?: string | null;
            /** @description A text, or at most four, before which the answer ends. */
            stop?: unknown;
            /** @description Ignored: what is said is stored in either case. */
            store?: boolean | null;
            /** @description Whether to answer with a stream of chunks. */
            stream?: boolean | null;
            /** @description `{include_usage}`. */
            stream_options?: {
                [key: string]: unknown;
            } | null;
            /**
             * Format: double
             * @description From 0 to 2.
             */
            temperature?: number | null;
            /** @description `auto`, `none`, `required` or `{type: "function", function: {name}}`. */
            tool_choice?: unknown;
            /** @description Functions that the client runs. */
            tools?: {
                [key: string]: unknown;
            }[] | null;
            /** @description Not supported. */
            top_logprobs?: unknown;
            /**
             * Format: double
             * @description From 0 to 1.
             */
            top_p?: number | null;
            /** @description Ignored. */
            user?: string | null;
            /** @description Not supported. */
            verbosity?: unknown;
            /** @description Not supported. */
            web_search_options?: unknown;
        };
        /** @description A conversation to create. */
        OpenAiConversationBody: {
            /** @description What was said in it. */
            items?: {
                [key: string]: unknown;
            }[] | null;
            /** @description The creator's data: at most 16 texts. */
            metadata?: {
                [key: string]: unknown;
            } | null;
        };
        /** @description Changes of a conversation. */
        OpenAiConversationChangeBody: {
            /** @description Replaces the texts among its metadata. */
            metadata: {
                [key: string]: unknown;
            };
        };
        /** @description What a model is to answer, in the form of OpenAI's Responses API. */
        OpenAiResponseBody: {
            /** @description Whether to answer at once, with a response that is read later. */
            background?: boolean | null;
            /** @description Ignored. */
            background_options?: unknown;
            /** @description Not supported. */
            context_management?: unknown;
            /** @description A conversation to continue: its id, or `{id}`. */
            conversation?: unknown;
            /** @description Ignored, but for log probabilities, which are refused. */
            include?: string[] | null;
            /** @description A text, or a list of items. */
            input?: unknown;
            /** @description The system prompt of this response. */
            instructions?: string | null;
            /**
             * Format: int32
             * @description The most tokens of one answer.
             */
            max_output_tokens?: number | null;
            /** @description Not supported. */
            max_tool_calls?: unknown;
            /** @description The sender's data: at most 16 texts. */
            metadata?: {
                [key: string]: unknown;
            } | null;
            /** @description `agent/NAME`, `agent/NAME@VERSION` or `agent/NAME@ALIAS` for a published agent, otherwise a provider's model. */
            model?: string | null;
            /** @description Whether one answer may have several calls. */
            parallel_tool_calls?: boolean | null;
            /** @description A response to continue. If others follow it already, its conversation is copied up to it. */
            previous_response_id?: string | null;
            /** @description Not supported. */
            prompt?: unknown;
            /** @description Ignored. */
            prompt_cache_key?: string | null;
            /** @description Ignored. */
            prompt_cache_options?: unknown;
            /** @description Ignored. */
            prompt_cache_retention?: unknown;
            /** @description `{effort}`. */
            reasoning?: {
                [key: string]: unknown;
            } | null;
            /** @description Ignored. */
            safety_identifier?: string | null;
            /** @description Ignored. */
            service_tier?: string | null;
            /** @description Must be true if given: what is said is stored. */
            store?: boolean | null;
            /** @description Whether to answer with a stream of events. */
            stream?: boolean | null;
            /** @description Ignored. */
            stream_options?: unknown;
            /**
             * Format: double
             * @description From 0 to 2.
             */
            temperature?: number | null;
            /** @description `{format}`: `{type: "text"}`, `{type: "json_object"}` or `{type: "json_schema", name, schema, strict}`. */
            text?: {
                [key: string]: unknown;
            } | null;
            /** @description `auto`, `none`, `required` or `{type: "function", name}`. */
            tool_choice?: unknown;
            /** @description Functions that the client runs. */
            tools?: {
                [key: string]: unknown;
            }[] | null;
            /** @description Not supported. */
            top_logprobs?: unknown;
            /**
             * Format: double
             * @description From 0 to 1.
             */
            top_p?: number | null;
            /** @description Ignored: what a model has no room for is folded. */
            truncation?: string | null;
            /** @description Ignored. */
            user?: string | null;
        };
        /**
         * @description Who gave a part of an answer. What a provider attaches is of use to itself alone, often to one model of it;
         *     others refuse it.
         */
        Origin: {
            /** @description The host that answered, with its port and its path where those tell endpoints apart. */
            host: string;
            /** @description The member of the answer that it stood in, where the protocol has several for the same. */
            member?: string | null;
            /** @description The model that was asked. */
            model: string;
            /** @description The protocol, by its name in the configuration, such as `openai`. */
            protocol: string;
        };
        /**
         * @description The parts of a request, in the order in which the model reads them.
         * @enum {string}
         */
        PartKind: "tools" | "system" | "folds" | "history" | "new" | "tail";
        /** @description Something that is paused. */
        Pause: {
            /**
             * Format: date-time
             * @description Since when.
             */
            created_at: string;
            /** @description What it is. */
            kind: components["schemas"]["PauseKind"];
            /** @description Its name; the id of a tenant. */
            name: string;
            /** @description The reason given when it was paused. */
            reason?: string | null;
            /** @description Whose agent or tool it is, or the tenant; absent for providers and pools, which are everybody's. */
            tenant?: string | null;
        };
        /** @description Why something is paused. */
        PauseBody: {
            /** @description At most 1000 bytes, for people. */
            reason?: string | null;
        };
        /**
         * @description What can be paused, in the order of the names: lists are in the same order in every store.
         * @enum {string}
         */
        PauseKind: "agent" | "pool" | "provider" | "tenant" | "tool";
        /** @description One pool's work: in the database, and as jobs in the queue. */
        PoolView: components["schemas"]["QueueStats"] & {
            /**
             * Format: int64
             * @description Jobs in the queue; null while it is unavailable.
             */
            depth?: number | null;
        };
        /** @description Worker pools that a tenant may name, and its own ones. */
        Pools: {
            /** @description Pools that its agents, tools and runs may name besides its own; any when absent. */
            allowed?: string[] | null;
            /** @description Its own pools: tenants that do not list them here may not name them. */
            own?: string[];
        };
        /** @description The outcome of one. */
        PostedResult: {
            answers?: components["schemas"]["Asked"] | null;
            /** @description The call. */
            call_id: string;
            /**
             * @description `accepted`, `already_settled`, `not_waiting`, `unknown`, or `locked`: another transaction has held its session
             *     for long; nothing was stored, post it again later.
             * @enum {string}
             */
            status: "accepted" | "already_settled" | "not_waiting" | "unknown" | "locked";
        };
        /** @description The outcomes of the posted results, in order. */
        PostedResults: {
            results: components["schemas"]["PostedResult"][];
        };
        /** @description The request of a session's next model call. */
        Preview: {
            /**
             * Format: int64
             * @description The last message of the running send whose results are aged, if the window has no room for all of them.
             */
            aged_to?: number | null;
            /**
             * Format: int32
             * @description Tokens that the answer may have.
             */
            answer_max: number;
            /**
             * Format: int64
             * @description Tokens that the request may have.
             */
            budget: number;
            /**
             * Format: int64
             * @description Tokens likely to be read from the provider's prompt cache.
             */
            cached: number;
            cost?: components["schemas"]["PreviewCost"] | null;
            /**
             * @description Identifies the request: `round.completed` has the same one, unless a hook changes the request, or
             *     the session, the agent or its notes change before.
             */
            digest: string;
            /** @description The folds before the window. */
            folds: components["schemas"]["PreviewFold"][];
            /**
             * Format: int64
             * @description The first message that is shown.
             */
            from_seq: number;
            /** @description What would delay or prevent the call. */
            limits: components["schemas"]["PreviewLimit"][];
            /** @description The model. */
            model: string;
            next_fold?: components["schemas"]["NextFold"] | null;
            /** @description The request's parts in the order in which the model reads them. */
            parts: components["schemas"]["PreviewPart"][];
            /** @description The provider's configured name. */
            provider: string;
            /** @description The request as its provider would get it. */
            request?: {
                [key: string]: unknown;
            } | null;
            /**
             * Format: int32
             * @description The round within that send, from 0.
             */
            round: number;
            /** @description The send of this round; null for a hypothetical one. */
            send_id?: string | null;
            /** @description What is shown after the messages, at the end of the user's turn. */
            tail?: string | null;
            /**
             * Format: int64
             * @description Tokens of all parts: estimated, and corrected by what the provider counted lately.
             */
            tokens: number;
            /**
             * Format: int64
             * @description The model's window: tokens of a request and its answer together.
             */
            window: number;
        };
        /** @description The cost of a call, in US dollars. */
        PreviewCost: {
            /**
             * Format: double
             * @description The longest answer.
             */
            answer_max_usd: number;
            /**
             * Format: double
             * @description The part for tokens read from the provider's cache.
             */
            cache_read_usd?: number;
            /**
             * Format: double
             * @description The part for tokens written to the provider's cache.
             */
            cache_write_usd?: number;
            /**
             * Format: double
             * @description The request, all of it: what is cached at that price, and the rest at its full one.
             */
            input_usd: number;
        };
        /** @description What stands for messages. */
        PreviewFold: {
            /**
             * Format: int64
             * @description The first message that it stands for.
             */
            from_seq: number;
            /**
             * Format: int64
             * @description The last one.
             */
            to_seq: number;
            /**
             * Format: int64
             * @description Its tokens.
             */
            tokens: number;
        };
        /** @description What would delay or prevent a call. */
        PreviewLimit: {
            /** @description What it is, as a code. */
            code: string;
            /** @description In words. */
            detail: string;
        };
        /** @description A part of a request. */
        PreviewPart: {
            /**
             * Format: int64
             * @description Tokens likely to be read from the provider's prompt cache.
             */
            cached: number;
            /**
             * Format: double
             * @description Its cost in US dollars, if the model's prices are known.
             */
            cost_usd?: number | null;
            /** @description How many there are: tools, folds or messages. */
            count: number;
            /** @description What it is. */
            kind: components["schemas"]["PartKind"];
            /**
             * Format: int64
             * @description Its tokens.
             */
            tokens: number;
            /**
             * Format: int64
             * @description Tokens that would be written to the provider's cache, if that is priced separately.
             */
            written?: number;
        };
        /**
         * @description Which of two queues a session's activations go through.
         * @enum {string}
         */
        Priority: "high" | "low";
        /** @description A problem document. */
        Problem: {
            /** @description The stable code. */
            code: string;
            /** @description What happened here. */
            detail: string;
            /** @description The invalid members, if the code is about members. */
            errors?: components["schemas"]["FieldError"][];
            /** @description Whether the same request may work later. */
            retryable: boolean;
            /**
             * Format: int32
             * @description The HTTP status.
             */
            status: number;
            /** @description What the code means. */
            title: string;
            /** @description The address of a page with advice. */
            type: string;
        };
        /** @description How far a tool call is. */
        ProgressEvent: {
            /** @description The call. */
            id: string;
            /** @description What the tool says of it. */
            message?: string;
            /** @description What is done, in a unit of the tool's own. */
            progress: number;
            /** @description Its send. */
            send_id: string;
            /** @description All that is to be done, if that is known. */
            total?: number;
        };
        /** @description A section of a prompt: a text, or the list of tools. */
        PromptSection: {
            /** @description What it is called in previews; unique in its prompt. */
            name: string;
            /** @description A template over `metadata` and the variables. */
            text?: string | null;
            /** @description The available tools with their descriptions, instead of a text. */
            tool_catalog?: boolean;
            /** @description An expression of the template language: the section is left out if it is false. */
            when?: string | null;
        };
        /** @description The sections of a prompt, after the system prompt. */
        PromptSpec: {
            /** @description In their order, with a blank line between them; at most 50. */
            sections?: components["schemas"]["PromptSection"][];
            /** @description Variables that sessions may set, by name; at most 100. */
            variables?: {
                [key: string]: components["schemas"]["PromptVariable"];
            };
        };
        /** @description A variable that a session may set when it takes the agent. */
        PromptVariable: {
            /** @description Its value if the session sets none; an empty text when absent. */
            default?: unknown;
            /** @description What it is for. */
            description?: string | null;
            /** @description Whether each session has to set it. */
            required?: boolean;
        };
        /** @description A key for a provider. The key itself is never shown. */
        ProviderKey: {
            /** @description The key's last characters; empty for a short key. */
            hint: string;
            /** @description The provider's name in the configuration of workers. */
            provider: string;
            /**
             * Format: date-time
             * @description When it was set.
             */
            set_at: string;
        };
        /** @description A key to set. It is stored sealed, and never shown again. */
        ProviderKeyBody: {
            /**
             * Format: password
             * @description The key as the provider gave it: visible ASCII characters.
             */
            key: string;
        };
        /** @description What to remove: either `before_seq` or `keep_last`. */
        PruneBody: {
            /**
             * Format: int64
             * @description Messages with a lower `seq`.
             */
            before_seq?: number | null;
            /** @description Only counts what would be removed. */
            dry_run?: boolean;
            /**
             * Format: int32
             * @description Keeps this many of the last messages, at least 1.
             */
            keep_last?: number | null;
        };
        /** @description What was removed, or would be. */
        Pruned: {
            /** @description Whether this was a dry run: nothing was removed. */
            dry_run: boolean;
            /**
             * Format: int64
             * @description The `seq` of the first one that is left.
             */
            first_seq: number;
            /**
             * Format: int64
             * @description Messages.
             */
            removed: number;
        };
        /**
         * @description What a model was asked for.
         * @enum {string}
         */
        Purpose: "round" | "fold" | "extract" | "embed";
        /** @description The cost of model calls of one kind. */
        PurposeUsage: {
            /**
             * Format: int64
             * @description Their responses, including incomplete ones.
             */
            calls: number;
            /** @description What models were asked for. */
            purpose: components["schemas"]["Purpose"];
            /** @description Their total cost. */
            usage: components["schemas"]["Usage"];
        };
        /** @description How much waits and runs in one pool. */
        QueueStats: {
            /**
             * Format: int64
             * @description Milliseconds that the oldest ready session has waited.
             */
            oldest_ready_ms: number;
            /** @description The pool. */
            pool: string;
            /**
             * Format: int64
             * @description Sessions with work and no live owner.
             */
            ready: number;
            /**
             * Format: int64
             * @description Sessions that a worker holds.
             */
            running: number;
        };
        /**
         * @description How much a model is to think before it answers.
         * @enum {string}
         */
        ReasoningEffort: "none" | "minimal" | "low" | "medium" | "high" | "xhigh" | "max";
        /** @description The model's visible reasoning, kept so that providers which want it back get it. */
        ReasoningPart: {
            origin?: components["schemas"]["Origin"] | null;
            /** @description The provider's signature over it, if any. */
            signature?: string | null;
            /** @description The text, without U+0000. */
            text: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "reasoning";
        };
        /**
         * @description How an agent finds again what it remembers.
         * @enum {string}
         */
        RecallMode: "auto" | "tool" | "off";
        /** @description What was recalled from the memory for a send. */
        RecalledEvent: {
            /** @description Entries that the model is shown. */
            count: number;
            /** @description Why there are none, if something went wrong. */
            note?: string;
            /** @description Its send. */
            send_id: string;
            /** @description Tokens of them, estimated. */
            tokens: number;
        };
        /**
         * @description What to do with a round that was open when its worker died.
         * @enum {string}
         */
        Recovery: "auto" | "manual";
        /**
         * @description The effect of executing the same call twice. This alone decides whether a call that may have been made is made again:
         *     after a worker crash, and after an attempt that failed. `keyed` when absent.
         * @enum {string}
         */
        Repeat: "safe" | "keyed" | "once";
        /**
         * @description How sends that have ended are shown.
         * @enum {string}
         */
        Representation: "verbatim" | "projection";
        /** @description A new attempt starts. */
        ResetEvent: {
            /** @description The new attempt. */
            attempt: number;
            /** @description Why. */
            reason?: string;
            /** @description The round. */
            round: number;
            /** @description Its send. */
            send_id: string;
        };
        /** @description The result of one call: an output, content or an error. */
        ResultBody: {
            answers?: components["schemas"]["Asked"] | null;
            /** @description The call. */
            call_id: string;
            /** @description A text, or parts of text, pictures and files, which the model is shown. */
            content?: string | components["schemas"]["InputPart"][];
            /**
             * @description One line that says what is left of the call once it is old, for agents that show digests of older
             *     sends or summaries of older results; at most 256 bytes are kept.
             */
            digest?: string | null;
            /** @description What went wrong, for the model. */
            error?: string;
            /**
             * @description Any JSON; a text is shown to the model as it is. For a question a text, one of its options, or
             *     `true` and `false`, by its kind. For permission: `{"approved": true | false, "note"?}`. For what a tool asks:
             *     `{"action": "accept", "content"?}`, `{"action": "decline"}` or `{"action": "cancel"}`.
             */
            output?: unknown;
            /**
             * Format: int32
             * @description Which question of the tool is answered, as listed; the first one when absent.
             */
            question?: number | null;
        };
        /** @description Results of calls. */
        ResultsBody: {
            /** @description At most 1000. */
            results: components["schemas"]["ResultBody"][];
        };
        /** @description How long a tenant's data is kept; the installation's settings apply to absent members. */
        Retention: {
            /** @description Legal hold: whether all deletion is blocked, by retention and on request. */
            hold?: boolean;
            /** @description The same of runs, with the sessions of their leaves. */
            runs?: string | null;
            /** @description How long sends are kept after their end, like `30d`, with their steps, calls and usage. */
            sends?: string | null;
            /** @description How long idle sessions are kept, with their messages; forever when absent. */
            sessions?: string | null;
        };
        /** @description Options of a retry. */
        RetryRunBody: {
            /**
             * Format: int64
             * @description A new limit of tokens.
             */
            max_tokens?: number | null;
        };
        /**
         * @description Who speaks.
         * @enum {string}
         */
        Role: "user" | "assistant" | "tool";
        /** @description How a key is rotated. */
        RotateBody: {
            /** @description How long the secret before is still accepted; `24h` if absent, at most `30d`. */
            overlap?: string | null;
        };
        /** @description How a webhook's secret is rotated. */
        RotateWebhookBody: {
            /** @description How long the previous secret remains valid for signing; `24h` if absent, at most `30d`. */
            overlap?: string | null;
            /** @description The new secret; made up if absent. */
            secret?: string | null;
        };
        /** @description A model call. */
        RoundEvent: {
            /** @description Identifies the content of the model request: sha256: and 64 hexadecimal digits. */
            digest?: string;
            /** @description The model. */
            model: string;
            /** @description Its number within the send, from 0. */
            round: number;
            /** @description Its send. */
            send_id: string;
            usage?: components["schemas"]["Usage"];
        };
        /** @description The parameters of a run that belongs to no session. */
        RunBody: {
            /** @description The value of `input`; the spec's own where absent. */
            input?: unknown;
            options?: components["schemas"]["RunOptions"] | null;
            /** @description A workflow: an object, or a text that holds one as JSON. */
            spec: {
                [key: string]: unknown;
            } | string;
        };
        /** @description Leaves of a run, by state. */
        RunCounts: {
            /**
             * Format: int32
             * @description Cancelled by someone, or because a sibling failed.
             */
            cancelled: number;
            /**
             * Format: int32
             * @description Succeeded.
             */
            completed: number;
            /**
             * Format: int32
             * @description Failed, including tolerated ones.
             */
            failed: number;
            /**
             * Format: int32
             * @description Known so far: a fan-out counts once it is expanded.
             */
            leaves: number;
            /**
             * Format: int32
             * @description In flight.
             */
            live: number;
            /**
             * Format: int32
             * @description Skipped.
             */
            skipped: number;
        };
        /** @description Options of a run in addition to its spec, fixed when it is created. */
        RunOptions: {
            /** @description Restricts every leaf's tools to those with these names: a run never has more tools than its caller. */
            allow?: string[] | null;
            /** @description At least how every leaf is isolated. */
            isolation?: components["schemas"]["Isolation"];
            /**
             * Format: int32
             * @description Maximum number of leaves in flight.
             */
            max_concurrency?: number | null;
            /**
             * Format: int64
             * @description Tokens that all its sends together may use; the smaller of this and the spec's counts.
             */
            max_tokens?: number | null;
            /** @description The workers that every leaf runs on: a run stays in the pool of the agent that started it. */
            pool?: string | null;
            /**
             * Format: int64
             * @description The limit set by a retry; it replaces all others.
             */
            raised_tokens?: number | null;
        };
        /**
         * @description Where a run stands.
         * @enum {string}
         */
        RunStatus: "queued" | "running" | "waiting" | "completed" | "failed" | "cancelled";
        /** @description A run as the API shows it. */
        RunView: {
            /** @description The published agents that its spec names, with the versions that it has. */
            agents?: {
                [key: string]: components["schemas"]["AgentRef"];
            };
            /**
             * Format: int32
             * @description Counts retries, from 1.
             */
            attempt: number;
            /** @description The number of leaves, by state. */
            counts: components["schemas"]["RunCounts"];
            /**
             * Format: date-time
             * @description When it was created.
             */
            created_at: string;
            error?: components["schemas"]["Failure"] | null;
            /**
             * Format: date-time
             * @description When it became final.
             */
            finished_at?: string | null;
            /** @description Its identity. */
            id: string;
            /** @description The value of `input`. */
            input: unknown;
            /** @description The spec's name. */
            name: string;
            /** @description The options of its creator. */
            options: components["schemas"]["RunOptions"];
            /** @description The output of the root node. */
            result?: unknown;
            /** @description The session it belongs to. */
            session_id?: string | null;
            /** @description The skills that its spec names, with the versions that it has. */
            skills?: {
                [key: string]: string;
            };
            /**
             * Format: date-time
             * @description When a scheduler first advanced it.
             */
            started_at?: string | null;
            /** @description Where it stands. */
            status: components["schemas"]["RunStatus"];
            /** @description The sum over all attempts of its settled leaves. */
            usage: components["schemas"]["Usage"];
        };
        /** @description What an autoscaler of one pool needs. */
        ScalingStats: {
            /**
             * Format: int64
             * @description Worker slots needed to serve everything concurrently: `ready + running`.
             */
            demand: number;
            /**
             * Format: int64
             * @description Sessions with work and no live owner.
             */
            ready: number;
            /**
             * Format: int64
             * @description Sessions that a worker holds.
             */
            running: number;
        };
        /**
         * @description What a key allows. `admin` includes the others, except `operate`.
         * @enum {string}
         */
        Scope: "read" | "use" | "define" | "send" | "answer" | "manage" | "admin" | "operate";
        /** @description A send to a session that exists or is created with it. */
        SendAnywhereBody: {
            input: string | components["schemas"]["InputPart"][];
            options?: components["schemas"]["SendOptions"] | null;
            session?: components["schemas"]["SendSession"] | null;
            /** @description A session that exists. */
            session_id?: string | null;
        };
        /** @description A send to a session in the path. */
        SendBody: {
            input: string | components["schemas"]["InputPart"][];
            options?: components["schemas"]["SendOptions"] | null;
        };
        /** @description The options of a send. */
        SendOptions: {
            /**
             * @description A published agent for this send only, instead of its session's: `NAME`, `NAME@VERSION` or `NAME@ALIAS`. A plain
             *     name is its newest version when the send is accepted.
             */
            agent?: string | null;
            budget?: components["schemas"]["Budget"] | null;
            /** @description From acceptance to the end. */
            deadline?: string | null;
            /** @description From acceptance until it has a position in the session. */
            delay?: string | null;
            /**
             * Format: int32
             * @description Replaces the agent's limit on rounds.
             */
            max_rounds?: number | null;
            /**
             * Format: int32
             * @description Replaces the agent's limit on the tokens of one answer.
             */
            max_tokens?: number | null;
            /** @description Replaces the agent's model. */
            model?: string | null;
            /** @description Further members of model requests: an object of at most 16 KiB of JSON. Replaces the agent's. */
            model_options?: {
                [key: string]: unknown;
            } | null;
            /**
             * @description `enqueue` (the default), `coalesce`, `steer`, `interrupt` or `reject`.
             * @enum {string|null}
             */
            on_busy?: "enqueue" | "coalesce" | "steer" | "interrupt" | "reject" | null;
            /**
             * @description The schema of the answer: a JSON Schema, or `{name, schema, strict}`; `{"type": "json_object"}` for any JSON
             *     object. Replaces the agent's.
             */
            output_schema?: {
                [key: string]: unknown;
            } | null;
            /** @description Replaces the agent's: whether one answer may have several calls. */
            parallel_tool_calls?: boolean | null;
            /** @description `high` (the default) or `low`; a number from -100 to 100 is read as `low` below 0. */
            priority?: ("high" | "low") | number | null;
            reasoning_effort?: components["schemas"]["ReasoningEffort"] | null;
            /** @description Replaces the agent's system prompt. */
            system_prompt?: string | null;
            /**
             * Format: double
             * @description Replaces the agent's.
             */
            temperature?: number | null;
            tool_choice?: components["schemas"]["ToolChoice"] | null;
            /** @description Narrows the agent's tools to those with these names. */
            tools?: string[] | null;
            /**
             * Format: double
             * @description Replaces the agent's.
             */
            top_p?: number | null;
            /** @description Values of the variables that the prompt of `agent` declares. */
            variables?: {
                [key: string]: unknown;
            } | null;
        };
        /** @description The target of a send: the fields of a new session, or the id of an existing one. */
        SendSession: {
            agent?: null | string | components["schemas"]["AgentSpec"];
            /** @description The data of a new session. */
            metadata?: {
                [key: string]: unknown;
            } | null;
            /** @description A session that exists; excludes the others. */
            session_id?: string | null;
            /** @description Values of the variables that the new session's agent declares. */
            variables?: {
                [key: string]: unknown;
            } | null;
        };
        /**
         * @description Where a send stands.
         * @enum {string}
         */
        SendStatus: "queued" | "running" | "waiting" | "completed" | "failed" | "cancelled";
        /** @description A send as the API shows it. */
        SendView: {
            agent_ref?: components["schemas"]["AgentRef"] | null;
            /**
             * Format: int32
             * @description Model calls started in its current round.
             */
            attempts: number;
            /**
             * Format: date-time
             * @description When it was accepted.
             */
            created_at: string;
            error?: components["schemas"]["Failure"] | null;
            /**
             * Format: date-time
             * @description When it became final.
             */
            finished_at?: string | null;
            /** @description Its identity. */
            id: string;
            memory?: components["schemas"]["MemoryView"] | null;
            /** @description The final answer's value, if there is an output schema. */
            output?: unknown;
            /** @description The final answer's text. */
            output_text?: string | null;
            /**
             * Format: int64
             * @description Its position in the session.
             */
            position?: number | null;
            /**
             * Format: int32
             * @description Rounds that are durable.
             */
            rounds: number;
            /** @description Its session. */
            session_id: string;
            /**
             * Format: date-time
             * @description When a worker first took it.
             */
            started_at?: string | null;
            /** @description Where it stands. */
            status: components["schemas"]["SendStatus"];
            stop_reason?: components["schemas"]["StopReason"] | null;
            /** @description The sum over its model calls. */
            usage: components["schemas"]["Usage"];
            waiting_on?: components["schemas"]["WaitingOn"] | null;
            /**
             * @description Names in the `tools` of the session's agent that no worker of its pool has; only for a session that is
             *     created with the send.
             */
            warnings?: components["schemas"]["ToolFault"][];
        };
        /** @description Changes of a session; absent members stay as they are. */
        SessionChangeBody: {
            agent?: null | string | components["schemas"]["AgentSpec"];
            /** @description Closes the session for new sends, or reopens it. */
            closed?: boolean | null;
            /**
             * @description Replaces the metadata. The agent's prompt stays as it was made, unless the agent or its variables are
             *     given too.
             */
            metadata?: {
                [key: string]: unknown;
            } | null;
            /**
             * @description Replaces the values of the agent's variables. If absent, previous values are kept as far as a new agent declares
             *     them.
             */
            variables?: {
                [key: string]: unknown;
            } | null;
        };
        /**
         * @description The status of a session. Derived from its hot row and its sends, never stored.
         * @enum {string}
         */
        SessionStatus: "idle" | "queued" | "running" | "waiting" | "closed";
        /** @description The cost of a session, as far as its sends are still stored. */
        SessionUsageView: {
            /** @description Its own model calls. */
            own: components["schemas"]["UsageView"];
            /**
             * Format: int64
             * @description The session and those below it.
             */
            sessions: number;
            /** @description Those, and the calls of the sessions below it: its children's, and those of its runs' leaves. */
            tree: components["schemas"]["UsageView"];
        };
        /** @description A session as the API shows it. */
        SessionView: {
            /** @description The current agent. */
            agent: components["schemas"]["AgentSpec"];
            agent_ref?: components["schemas"]["AgentRef"] | null;
            /**
             * Format: int32
             * @description Counts changes of the agent, from 1.
             */
            agent_version: number;
            /**
             * Format: date-time
             * @description When it was created.
             */
            created_at: string;
            /**
             * Format: int64
             * @description The `seq` of the first of them: 1, or higher once older ones were pruned.
             */
            first_seq: number;
            /** @description Its identity. */
            id: string;
            /**
             * Format: int64
             * @description Messages in the transcript.
             */
            messages: number;
            /** @description The creator's data. */
            metadata: {
                [key: string]: unknown;
            };
            /** @description The session that created it as its child. */
            parent_id?: string | null;
            /** @description Where it stands. */
            status: components["schemas"]["SessionStatus"];
            /**
             * Format: date-time
             * @description When its agent, metadata or lifecycle last changed.
             */
            updated_at: string;
            /** @description The values of its agent's variables that were set. */
            variables?: {
                [key: string]: unknown;
            };
            /** @description Tools that its agent names and no live worker of its pool has; in responses that show one session. */
            warnings?: components["schemas"]["ToolFault"][];
        };
        /** @description The files of a skill, by their paths in its folder. */
        SkillBody: {
            /** @description Each path with the file's text, or with `{"base64": …}`. */
            files: {
                [key: string]: unknown;
            };
        };
        /** @description Something that is wrong with a skill. */
        SkillFault: {
            /** @description A message for people. */
            detail: string;
            /** @description The file that it is about; empty for the whole skill. */
            path?: string;
        };
        /** @description A file of a skill, without its content. */
        SkillFile: {
            /**
             * Format: int64
             * @description Its length.
             */
            bytes: number;
            /** @description Whether it is placed into workspaces as a program: it starts with `#!`, or is under `scripts/`. */
            executable: boolean;
            /** @description Its path in the skill's folder. */
            path: string;
            /** @description The SHA-256 of its content. */
            sha256: string;
        };
        /** @description Skills by name. */
        SkillList: {
            data: components["schemas"]["SkillSummary"][];
            /** @description The `cursor` of the next page; null at the end. */
            next_cursor?: string | null;
            /** @description The mounted skills that were left out, and why. */
            warnings: components["schemas"]["SkillWarning"][];
        };
        /**
         * @description Where a skill came from.
         * @enum {string}
         */
        SkillSource: "uploaded" | "mounted";
        /** @description A skill in a list: what its name means now. */
        SkillSummary: {
            /**
             * Format: int64
             * @description Their length together.
             */
            bytes: number;
            /**
             * Format: date-time
             * @description When the version was stored.
             */
            created_at: string;
            /** @description What it is for and when to use it. */
            description: string;
            /** @description The number of its files. */
            files: number;
            /** @description Its current version. */
            hash: string;
            /** @description Its name. */
            name: string;
            /** @description Where the version came from. */
            source: components["schemas"]["SkillSource"];
        };
        /** @description A version in a list of versions. */
        SkillVersion: {
            /**
             * Format: date-time
             * @description When it was stored.
             */
            created_at: string;
            /** @description The version. */
            hash: string;
            /** @description Where it came from. */
            source: components["schemas"]["SkillSource"];
        };
        /** @description A version of a skill. */
        SkillView: {
            /** @description The tools that it asks for: text, or a list. Information only. */
            allowed_tools?: {
                [key: string]: unknown;
            } | null;
            /** @description Its requirements on the environment. */
            compatibility?: string | null;
            /**
             * Format: date-time
             * @description When the version was stored.
             */
            created_at: string;
            /** @description What it is for and when to use it. */
            description: string;
            /** @description Its files in the byte order of their paths. */
            files: components["schemas"]["SkillFile"][];
            /** @description The SHA-256 of its content: the version. */
            hash: string;
            /** @description Its licence. */
            license?: string | null;
            /** @description Its author's data. */
            metadata?: {
                [key: string]: unknown;
            } | null;
            /** @description Its name. */
            name: string;
            /** @description Where the version came from. */
            source: components["schemas"]["SkillSource"];
            /** @description All versions of the name, newest first, at most a hundred; in answers that show one skill. */
            versions?: components["schemas"]["SkillVersion"][];
            /** @description Deviations from the format that were accepted. */
            warnings: string[];
        };
        /** @description A mounted skill that was left out. */
        SkillWarning: {
            /** @description Why. */
            errors: components["schemas"]["SkillFault"][];
            /** @description The folder that it is in. */
            name: string;
            /**
             * Format: date-time
             * @description When a process last said so.
             */
            seen_at: string;
        };
        /** @description The contents of a valid spec. */
        SpecSummary: {
            /** @description The names that its nodes have. */
            ids: string[];
            /** @description Its name. */
            name: string;
            /** @description The number of nodes, by type. */
            nodes: {
                [key: string]: number;
            };
        };
        /** @description A message for a running leaf. */
        SteerBody: {
            /** @description The message that it gets before its next round. */
            text: string;
        };
        /** @description A message that a person sent to the session of a running leaf. */
        Steered: {
            /**
             * Format: date-time
             * @description When the run took note of it.
             */
            at: string;
            /** @description The item in the session's inbox, which has its outcome. */
            item_id: string;
            /** @description The message, truncated if it is long. */
            text: string;
        };
        /** @description Where a send stands. */
        StepEvent: {
            /**
             * Format: date-time
             * @description When.
             */
            at: string;
            /** @description Its send. */
            id: string;
            /** @description Why it continues; with `send.resumed`. */
            reason?: string;
            /** @description Its send. */
            send_id: string;
            status: components["schemas"]["SendStatus"];
            /** @description What it waits for; with `send.waiting`. */
            waiting_on?: string;
        };
        /**
         * @description Why a final send ended.
         * @enum {string}
         */
        StopReason: "end" | "length" | "round_limit" | "budget" | "policy" | "deadline" | "cancelled" | "provider_error" | "context" | "tool_abort" | "worker_crash_limit" | "attempt_limit" | "internal";
        /** @description A tenant. */
        Tenant: {
            /**
             * Format: date-time
             * @description When it was created.
             */
            created_at: string;
            /**
             * Format: date-time
             * @description Since when it is being erased, if it is.
             */
            erasing_at?: string | null;
            /** @description `ten_` and a number. */
            id: string;
            /** @description What it may use. */
            limits: components["schemas"]["Limits"];
            /** @description Unique among tenants. */
            name: string;
            /** @description Worker pools that it may name. */
            pools: components["schemas"]["Pools"];
            /** @description For how long what it has is kept. */
            retention: components["schemas"]["Retention"];
            /**
             * Format: int32
             * @description Scheduling weight relative to other tenants, 1 to 1000, while several have sessions waiting.
             */
            weight: number;
        };
        /** @description Changes of a tenant; absent members stay as they are. */
        TenantChangeBody: {
            limits?: components["schemas"]["Limits"] | null;
            /** @description At most 100 characters, unique among tenants. */
            name?: string | null;
            pools?: components["schemas"]["Pools"] | null;
            retention?: components["schemas"]["Retention"] | null;
            /**
             * Format: int32
             * @description Scheduling weight relative to other tenants, from 1 to 1000.
             */
            weight?: number | null;
        };
        /** @description How far the erasure of a tenant is. */
        TenantErasure: {
            /**
             * Format: date-time
             * @description When it began.
             */
            begun_at: string;
            /**
             * Format: int64
             * @description Blobs that are still to be removed with their bytes.
             */
            blobs_left: number;
            /** @description What the erasure itself does not reach, and what becomes of it. */
            elsewhere: string[];
            /**
             * Format: date-time
             * @description When nothing was left.
             */
            ended_at?: string | null;
            /** @description What could not be removed at the last attempt; it is retried. */
            failed?: string | null;
            /** @description Rows that were removed, by table. */
            removed: {
                [key: string]: number;
            };
            /** @description `erasing`, or `erased` once nothing of it is left. */
            status: string;
            /** @description `ten_` and a number, which is not used again. */
            tenant: string;
        };
        /** @description One day. */
        TenantUsageDay: components["schemas"]["TenantUsageSpan"] & {
            /**
             * Format: date-time
             * @description When it began.
             */
            day: string;
        };
        /** @description What sends used. */
        TenantUsageSpan: {
            /**
             * Format: int64
             * @description Their model responses, including incomplete ones.
             */
            calls: number;
            /**
             * Format: int64
             * @description Sends that are still stored.
             */
            sends: number;
            /** @description What these cost. */
            usage: components["schemas"]["Usage"];
        };
        /** @description What a tenant used. */
        TenantUsageView: {
            /**
             * Format: int64
             * @description Bytes of its blobs now.
             */
            blob_bytes: number;
            /** @description Each day, today first. A send counts on the day on which it was accepted, in UTC, with all it cost. */
            days: components["schemas"]["TenantUsageDay"][];
            /** @description All of these days together. */
            total: components["schemas"]["TenantUsageSpan"];
        };
        /** @description Plain text. */
        TextPart: {
            /** @description The text, without U+0000. */
            text: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "text";
        };
        /** @description How much an agent's model may think. */
        ThinkingSpec: {
            /**
             * Format: int32
             * @description Tokens of one answer that may be thought, at least 1024 and fewer than `max_tokens`.
             */
            budget_tokens: number;
        };
        /** @description Timers to create in one request. */
        TimerBatchBody: {
            /** @description At most 1000. */
            timers: components["schemas"]["BatchTimer"][];
        };
        /** @description The outcome of one item: it has either `timer` or `problem`. */
        TimerBatchResult: {
            problem?: components["schemas"]["Problem"] | null;
            /**
             * Format: int32
             * @description The status that the item alone would have been answered with.
             */
            status: number;
            timer?: components["schemas"]["TimerView"] | null;
        };
        /** @description The schema of an answer. */
        TimerBatchResults: {
            /** @description One per item, in order. */
            results: components["schemas"]["TimerBatchResult"][];
        };
        /** @description A timer to create. */
        TimerBody: {
            /** @description How long from now: once, or with `every` the first time. */
            after?: string | null;
            /**
             * Format: date-time
             * @description When it is due: once, or with `every` the first time.
             */
            at?: string | null;
            catch_up?: components["schemas"]["CatchUp"] | null;
            /** @description A cron expression: five fields starting with minutes, or six with seconds first. */
            cron?: string | null;
            /** @description A fixed rate, at least `1s`. */
            every?: string | null;
            input?: string | components["schemas"]["InputPart"][];
            /** @description Each occurrence is delayed by less than this; at most `1d`. */
            jitter?: string | null;
            /**
             * Format: int32
             * @description Maximum number of occurrences.
             */
            max_occurrences?: number | null;
            on_busy?: components["schemas"]["Merge"] | null;
            options?: components["schemas"]["SendOptions"] | null;
            run?: components["schemas"]["RunBody"] | null;
            /** @description The session that it sends to, under that session's own agent. */
            session_id?: string | null;
            /** @description The calendar's time zone, such as `Europe/Berlin`; `UTC` when absent. */
            timezone?: string | null;
            /**
             * Format: date-time
             * @description Nothing is due after this.
             */
            until?: string | null;
        };
        /** @description The parameters of a timer's runs; they are validated when the timer is created. */
        TimerRun: {
            /**
             * Format: int32
             * @description The version of the language it is written in.
             */
            dsl_version: number;
            /** @description The value of `input`. */
            input: unknown;
            /** @description The spec's name. */
            name: string;
            /** @description Options of each run in addition to the spec. */
            options: components["schemas"]["RunOptions"];
            /** @description The spec in its canonical form. */
            spec: {
                [key: string]: unknown;
            };
        };
        /**
         * @description Where a timer stands.
         * @enum {string}
         */
        TimerStatus: "armed" | "paused" | "done" | "cancelled" | "dead";
        /** @description A timer as the API shows it. */
        TimerView: {
            /** @description How long after its creation it is due: once, or the first time. */
            after?: string | null;
            agent_ref?: components["schemas"]["AgentRef"] | null;
            /**
             * Format: date-time
             * @description When it is due: once, or the first time.
             */
            at?: string | null;
            /** @description What to do with missed occurrences. */
            catch_up: components["schemas"]["CatchUp"];
            /**
             * Format: date-time
             * @description When it was created.
             */
            created_at: string;
            /** @description The calendar. */
            cron?: string | null;
            /**
             * Format: date-time
             * @description When it ended.
             */
            ended_at?: string | null;
            error?: components["schemas"]["Failure"] | null;
            /** @description The interval of a fixed rate. */
            every?: string | null;
            /**
             * Format: int32
             * @description Failed deliveries of the next occurrence.
             */
            failures: number;
            /** @description Its identity. */
            id: string;
            /** @description What it says there. */
            input?: components["schemas"]["ContentPart"][] | null;
            /** @description Each occurrence is delayed by less than this. */
            jitter?: string | null;
            /**
             * Format: date-time
             * @description When an occurrence last got its fate.
             */
            last_fired_at?: string | null;
            /** @description The run that it started last. */
            last_run_id?: string | null;
            /** @description The send of the last occurrence that had one. */
            last_send_id?: string | null;
            /**
             * Format: int32
             * @description Maximum number of occurrences.
             */
            max_occurrences?: number | null;
            /** @description When the next occurrences fire, at most five. */
            next: string[];
            /**
             * Format: int64
             * @description Occurrences that have an outcome.
             */
            occurrences: number;
            /** @description What to do with an occurrence while the previous one's send is still queued. */
            on_busy: components["schemas"]["Merge"];
            options?: components["schemas"]["SendOptions"] | null;
            run?: components["schemas"]["TimerRun"] | null;
            /** @description The session that it sends to. */
            session_id?: string | null;
            /** @description Where it stands. */
            status: components["schemas"]["TimerStatus"];
            /** @description The calendar's time zone. */
            timezone?: string | null;
            /**
             * Format: date-time
             * @description Nothing is due after this.
             */
            until?: string | null;
            /**
             * Format: date-time
             * @description When it last changed.
             */
            updated_at: string;
        };
        /** @description A function that the model asked for. */
        ToolCall: {
            /**
             * Format: int32
             * @description How many of the message's parts came before the call; all of them when absent.
             */
            after?: number | null;
            /** @description The arguments: the model's JSON text, or that text as a string when it is not JSON. */
            arguments: unknown;
            attached?: components["schemas"]["CallAttached"] | null;
            /** @description Unique within the session; assigned by Mainspring, because models repeat or omit theirs. */
            id: string;
            /** @description The tool's name as the model wrote it. */
            name: string;
        };
        /** @description Whether a model must call tools: `auto`, `none`, `required`, or `{"name": TOOL}`. */
        ToolChoice: "auto" | "none" | "required" | {
            /** @description It must call the one with this name, in the first round of a send. */
            name: string;
        };
        /**
         * @description How the model is shown the older results of a tool, of all but the newest.
         * @enum {string}
         */
        ToolContext: "preserve" | "truncate" | "archive" | "summary";
        /** @description One entry of `agent.tools`. */
        ToolEntry: string | components["schemas"]["DeclaredTool"];
        /** @description What is wrong with a list of tools. */
        ToolFault: {
            /** @description What is wrong with it. */
            detail: string;
            /** @description Where, as a JSON pointer below the list. */
            pointer: string;
        };
        /**
         * @description What a name stands for.
         * @enum {string}
         */
        ToolKind: "tool" | "mcp_server";
        /** @description The names that agents can use in `tools`. */
        ToolView: {
            /** @description What it does, in a line. */
            description: string;
            /**
             * @description Whether it is a tool, or an MCP server whose tools an entry `{"type": "mcp", "server": NAME}`
             *     brings.
             */
            kind: components["schemas"]["ToolKind"];
            /** @description Its name. */
            name: string;
            /** @description The pools whose workers have it. */
            pools: string[];
            /** @description The presets that hold it. */
            presets: string[];
        };
        /** @description Tokens and cost of one model response, or the sum of several. */
        Usage: {
            /**
             * Format: int64
             * @description The part of `input_tokens` that the provider's cache served.
             */
            cache_read_tokens?: number;
            /**
             * Format: int64
             * @description The part of `input_tokens` that was written to the provider's cache, if reported.
             */
            cache_write_tokens?: number;
            /**
             * Format: double
             * @description US dollars, if a price is known.
             */
            cost_usd?: number | null;
            /** @description True if the provider reported no usage and the numbers are estimates. */
            estimated?: boolean;
            /**
             * Format: int64
             * @description Input tokens, including those from the provider's cache.
             */
            input_tokens: number;
            /**
             * Format: int64
             * @description Output tokens, including reasoning.
             */
            output_tokens: number;
            /**
             * Format: int64
             * @description The part of `output_tokens` that was reasoning.
             */
            reasoning_tokens?: number;
        };
        /** @description The cost of model calls. */
        UsageView: {
            /**
             * Format: int64
             * @description Model responses, including incomplete ones.
             */
            calls: number;
            /** @description The same by model. */
            models: components["schemas"]["ModelUsage"][];
            /** @description The same by the purpose of the model calls. */
            purposes: components["schemas"]["PurposeUsage"][];
            /** @description Their total cost. */
            usage: components["schemas"]["Usage"];
        };
        /** @description A spec to validate. */
        ValidateBody: {
            /** @description A workflow: an object, or a text that holds one as JSON. */
            spec: {
                [key: string]: unknown;
            } | string;
        };
        /** @description A call that waits for an answer. */
        WaitingCall: {
            /** @description The arguments. */
            arguments: unknown;
            asks?: components["schemas"]["Asks"] | null;
            /** @description The id with which its result is posted. */
            call_id: string;
            /**
             * Format: date-time
             * @description When an answer is too late.
             */
            deadline_at?: string | null;
            /** @description The tool's name. */
            name: string;
            /**
             * Format: date-time
             * @description When it was asked.
             */
            requested_at: string;
            /** @description The send that asks. */
            send_id: string;
            /** @description The session of the call: the requested one, or one below it. */
            session_id: string;
            /** @description `human` or `tool`. */
            waiting_on: components["schemas"]["WaitingOn"];
            /**
             * @description `answer` takes any JSON, `permission` takes `{"approved": true | false, "note"?}`, `reply` what `asks` says.
             * @enum {string}
             */
            wants: "answer" | "permission";
        };
        /**
         * @description What a waiting send waits for.
         * @enum {string}
         */
        WaitingOn: "tool" | "human" | "agent" | "run" | "timer" | "retry" | "recovery";
        /** @description Something went wrong with the model and was put right. */
        WarningEvent: {
            /** @description What went wrong. */
            code: string;
            /** @description What happened, or the provider's words, shortened. */
            message?: string;
            /** @description The model. */
            model?: string;
            /** @description The part of the request that the provider refused. */
            part?: string;
            /** @description The provider's configured name. */
            provider?: string;
            /** @description The round. */
            round: number;
            /** @description Its send. */
            send_id: string;
        };
        /** @description A webhook. */
        Webhook: {
            /**
             * Format: date-time
             * @description When it was created.
             */
            created_at: string;
            /** @description Whether it is disabled. */
            disabled: boolean;
            /**
             * Format: date-time
             * @description When it was disabled.
             */
            disabled_at?: string | null;
            /** @description Why it is disabled. */
            disabled_reason?: string | null;
            /** @description Event filters: types like `send.completed`, prefixes like `send.*`, or `*`. */
            events: string[];
            /** @description Its id. */
            id: string;
            /**
             * Format: date-time
             * @description Until when messages are also signed with the previous secret.
             */
            previous_until?: string | null;
            /**
             * @description The secret that verifies the signatures. Only in the response that creates or rotates it, and not in a repeated
             *     one (`Idempotency-Replayed`).
             */
            secret?: string | null;
            /** @description Where events are posted. */
            url: string;
        };
        /** @description Changes of a webhook; absent members stay as they are. */
        WebhookChangeBody: {
            /** @description Whether it is disabled. Pending deliveries continue when it is enabled again. */
            disabled?: boolean | null;
            /** @description Its event filters. */
            events?: string[] | null;
            /** @description The new signing secret; messages are also signed with the previous one for 24 hours. */
            secret?: string | null;
            /** @description Where events are posted. */
            url?: string | null;
        };
        /** @description A delivery: one event on its way to one webhook. */
        WebhookDelivery: {
            /**
             * Format: int32
             * @description The HTTP status of the last answer.
             */
            answer?: number | null;
            /**
             * Format: int32
             * @description Attempts so far.
             */
            attempts: number;
            /** @description What went wrong last. */
            error?: string | null;
            /** @description The event's id, which is the header `webhook-id` of every attempt. */
            id: string;
            /**
             * Format: date-time
             * @description When the next attempt is due, or when the one in flight times out.
             */
            next_attempt_at?: string | null;
            /**
             * Format: date-time
             * @description When it was delivered or given up.
             */
            settled_at?: string | null;
            /** @description The status of the delivery. */
            status: components["schemas"]["DeliveryStatus"];
            /** @description The send or the run that it is about. */
            subject: string;
            /**
             * Format: date-time
             * @description When the event happened.
             */
            timestamp: string;
            /** @description The event's type. */
            type: string;
        };
        /**
         * @description What happens when a note is added to a full list.
         * @enum {string}
         */
        WhenFull: "reject" | "fifo";
        /** @description A preset or a tool of the workers, with additional options. */
        WorkerTool: {
            /** @description Whether a person has to approve each call. */
            approval?: boolean;
            /** @description A preset (`core`, `explore`, `full`) or the name of a tool that the workers have. */
            name: string;
            /** @description The workers that sends of an agent with it run on. */
            pool?: string | null;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "worker";
        };
        /** @description A live worker. */
        WorkerView: {
            /**
             * Format: int32
             * @description Maximum number of sends in flight.
             */
            concurrency: number;
            /** @description One lifetime of the process. */
            id: string;
            /**
             * Format: int32
             * @description Sends it had in flight at its last renewal.
             */
            in_flight: number;
            /**
             * Format: date-time
             * @description When it counts as dead unless it renews.
             */
            lease_until: string;
            /** @description Its label. */
            name: string;
            /** @description The pool it serves. */
            pool: string;
            /**
             * Format: int32
             * @description Which version of what processes say to each other its program speaks; 0 for a release that did not note it. Two
             *     of them are two releases.
             */
            protocol: number;
            /**
             * Format: date-time
             * @description When it began.
             */
            started_at: string;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}

export type Schemas = components["schemas"];
