{{/* What a schema cannot say: each `fail` names the value and what to do. */}}
{{- define "mainspring.validate" -}}
{{- if not .Values.image.repository }}
{{- fail "image.repository: name where you pushed the image of `cargo xtask package`, like registry.example.com/mainspring" }}
{{- end }}
{{- if not .Values.database.existingSecret }}
{{- fail "database.existingSecret: name a Secret with the database's URL under the key database_url (database.key names another)" }}
{{- end }}
{{- if not .Values.redis.existingSecret }}
{{- fail "redis.existingSecret: name a Secret with the URL of Redis under the key redis_url (redis.key names another)" }}
{{- end }}
{{- if not (or .Values.root_key.existingSecret .Values.config.insecure) }}
{{- fail "root_key.existingSecret: name a Secret with the operator's key under root_key (`openssl rand -hex 32` makes one); config.insecure: true does without, behind a proxy that authenticates" }}
{{- end }}
{{- include "mainspring.validateEnv" (dict "root" . "at" "extraEnv" "env" .Values.extraEnv) }}
{{- include "mainspring.validateEnv" (dict "root" . "at" "scheduler.extraEnv" "env" .Values.scheduler.extraEnv) }}
{{- include "mainspring.validateEnv" (dict "root" . "at" "worker.extraEnv" "env" .Values.worker.extraEnv) }}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) }}
{{- fail "ingress.hosts: name the hosts that clients use, like mainspring.example.com" }}
{{- end }}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) }}
{{- fail "httpRoute.parentRefs: name the Gateway, like {name: public, namespace: gateways}" }}
{{- end }}
{{- if and .Values.networkPolicy.egress.enabled (not .Values.networkPolicy.egress.common) }}
{{- fail "networkPolicy.egress.common: name rules that let pods reach the database and Redis, or turn networkPolicy.egress.enabled off" }}
{{- end }}
{{- include "mainspring.validateConfig" (dict "at" "config" "config" .Values.config) }}
{{- include "mainspring.validateConfig" (dict "at" "worker.config" "config" .Values.worker.config) }}
{{- include "mainspring.validateFiles" (dict "at" "config" "config" .Values.config "mounts" (concat .Values.extraVolumeMounts .Values.scheduler.extraVolumeMounts) "tools" false) }}
{{- include "mainspring.validateTimes" (dict "at" "config" "config" .Values.config) }}
{{- $needed := include "mainspring.schedulerStop" . | int }}
{{- $grace := .Values.scheduler.terminationGracePeriodSeconds }}
{{- if and $grace (lt (int $grace) $needed) }}
{{- fail (printf "scheduler.terminationGracePeriodSeconds: %d is less than the %d seconds that stopping takes: scheduler.preStopSeconds (%d), config.scheduler.drain_timeout (%s) and 5. Raise it, or leave it out" (int $grace) $needed (int .Values.scheduler.preStopSeconds) .Values.config.scheduler.drain_timeout) }}
{{- end }}
{{- include "mainspring.validateScaling" (dict "at" "scheduler" "own" .Values.scheduler) }}
{{- $seen := dict }}
{{- range $key := keys .Values.pools | sortAlpha }}
{{- $at := printf "pools.%s" $key }}
{{- $own := default dict (get $.Values.pools $key) }}
{{- include "mainspring.validateConfig" (dict "at" (printf "%s.config" $at) "config" (default dict $own.config)) }}
{{- $pool := include "mainspring.pool" (dict "root" $ "name" $key "own" $own) | fromJson }}
{{- include "mainspring.validateTimes" (dict "at" (printf "%s.config" $at) "config" $pool.config) }}
{{- include "mainspring.validateEnv" (dict "root" $ "at" (printf "%s.extraEnv" $at) "env" $pool.extraEnv) }}
{{- include "mainspring.validatePool" (dict "root" $ "at" $at "name" $key "pool" $pool) }}
{{- with get $seen $pool.pool }}
{{- fail (printf "%s.pool: %s is served by pools.%s already; give one of them another pool, or more replicas" $at $pool.pool .) }}
{{- end }}
{{- $_ := set $seen $pool.pool $key }}
{{- end }}
{{- end -}}

{{/* A name that a container has twice is refused by the API server, or the last one counts. */}}
{{- define "mainspring.validateEnv" -}}
{{- $own := dict "MAINSPRING_CONFIG" "config" "MAINSPRING_NAME" "the pod's name, which is its own" "MAINSPRING_DATABASE_URL" "database.existingSecret" "MAINSPRING_REDIS_URL" "redis.existingSecret" }}
{{- if .root.Values.root_key.existingSecret }}{{ $_ := set $own "MAINSPRING_ROOT_KEY" "root_key.existingSecret" }}{{ end }}
{{- if .root.Values.secrets_key.existingSecret }}{{ $_ := set $own "MAINSPRING_SECRETS_KEY" "secrets_key.existingSecret" }}{{ end }}
{{- range $place, $one := default list .env }}
{{- with get $own $one.name }}
{{- fail (printf "%s[%d]: the chart sets %s itself: use %s" $.at $place $one.name .) }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "mainspring.validateTimes" -}}
{{- if not .config.lease_ttl }}{{ fail (printf "%s.lease_ttl: is needed to know how long a pod may take to stop; the program's own default is 4s" .at) }}{{ end }}
{{- if not (dig "scheduler" "drain_timeout" "" .config) }}{{ fail (printf "%s.scheduler.drain_timeout: is needed to know how long a pod may take to stop; the program's own default is 10s" .at) }}{{ end }}
{{- if not (dig "worker" "drain_timeout" "" .config) }}{{ fail (printf "%s.worker.drain_timeout: is needed to know how long a pod may take to stop; the program's own default is 25s" .at) }}{{ end }}
{{- end -}}

{{- define "mainspring.validatePool" -}}
{{- $needed := include "mainspring.workerStop" .pool | int }}
{{- $grace := .pool.terminationGracePeriodSeconds }}
{{- if and $grace (lt (int $grace) $needed) }}
{{- fail (printf "%s.terminationGracePeriodSeconds: %d is less than the %d seconds that stopping takes: worker.drain_timeout (%s), lease_ttl (%s) and 5. Raise it, shorten worker.drain_timeout, or leave it out" .at (int $grace) $needed .pool.config.worker.drain_timeout .pool.config.lease_ttl) }}
{{- end }}
{{- $name := printf "%s-worker-%s" (include "mainspring.fullname" .root) .name }}
{{- if gt (len $name) 54 }}
{{- fail (printf "%s: the name %s has more than 54 characters, which is what an autoscaler can name: shorten the pool's key and name the pool itself with `pool`, or set a shorter fullnameOverride" .at $name) }}
{{- end }}
{{- $provided := or .pool.providerKeys (dig "llm" "provider" "" .pool.config) (dig "llm" "base_url" "" .pool.config) (dig "providers" "" .pool.config) .pool.extraEnv .root.Values.extraEnv }}
{{- if not $provided }}
{{- fail (printf "%s: no provider of models, so its workers would not start: set %s.providerKeys.OPENAI_API_KEY (or ANTHROPIC_API_KEY) to {existingSecret, key}, or %s.config.llm.provider (`demo` answers without a model)" .at .at .at) }}
{{- end }}
{{- include "mainspring.validateScaling" (dict "at" .at "own" .pool) }}
{{- if and (eq .pool.autoscaling.kind "keda") (not .pool.autoscaling.keda.api_key.existingSecret) (not .root.Values.config.insecure) }}
{{- fail (printf "%s.autoscaling.keda.api_key.existingSecret: KEDA needs an API key to ask /v1/scaling/%s: `mainspring keys create keda --scope read --scope operate` prints one; name the Secret that has it" .at .pool.pool) }}
{{- end }}
{{- include "mainspring.validateFiles" (dict "at" (printf "%s.config" .at) "config" .pool.config "mounts" (concat .root.Values.extraVolumeMounts .pool.extraVolumeMounts) "tools" true) }}
{{- end -}}

{{- define "mainspring.validateScaling" -}}
{{- with .own.autoscaling }}
{{- if gt (int .minReplicas) (int .maxReplicas) }}
{{- fail (printf "%s.autoscaling.minReplicas: %d is more than maxReplicas, %d" $.at (int .minReplicas) (int .maxReplicas)) }}
{{- end }}
{{- if and (eq .kind "hpa") (lt (int .minReplicas) 1) }}
{{- fail (printf "%s.autoscaling.minReplicas: an HPA does not scale to zero; set 1, or autoscaling.kind: keda" $.at) }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Folders that processes share have to be volumes: nothing else can be written. */}}
{{- define "mainspring.validateFiles" -}}
{{- $folders := dict }}
{{- if eq (dig "blobs" "store" "" .config) "file" }}
{{- if not (dig "blobs" "dir" "" .config) }}
{{- fail (printf "%s.blobs.dir: with blobs.store: file, name a folder of a volume that every scheduler and worker mounts (ReadWriteMany)" .at) }}
{{- end }}
{{- $_ := set $folders "blobs.dir" .config.blobs.dir }}
{{- end }}
{{- if and .tools (dig "tools" "workspace" "" .config) }}
{{- $_ := set $folders "tools.workspace" .config.tools.workspace }}
{{- end }}
{{- range $key, $folder := $folders }}
{{- $found := false }}
{{- range $.mounts }}
{{- if or (eq $folder .mountPath) (hasPrefix (printf "%s/" (trimSuffix "/" .mountPath)) $folder) }}{{ $found = true }}{{ end }}
{{- end }}
{{- if not $found }}
{{- fail (printf "%s.%s: %s is in no volume, and the image cannot be written to: add one to extraVolumes and extraVolumeMounts that every pod of the pool sees (ReadWriteMany)" $.at $key $folder) }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "mainspring.validateConfig" -}}
{{- $at := .at }}
{{- $secret := "is a secret, and a ConfigMap is none" }}
{{- range $key, $instead := dict
  "database_url" "name its Secret in database.existingSecret"
  "redis_url" "name its Secret in redis.existingSecret"
  "root_key" "name its Secret in root_key.existingSecret"
  "secrets_key" "name its Secret in secrets_key.existingSecret"
  "api_key" "processes that serve need none" }}
{{- if hasKey $.config $key }}{{ fail (printf "%s.%s: %s: %s" $at $key $secret $instead) }}{{ end }}
{{- end }}
{{- range $key, $instead := dict
  "listen" "set scheduler.port and bindAddress"
  "ops_listen" "set worker.port and bindAddress"
  "migrate" "set migrate.enabled"
  "name" "it is the pod's name"
  "root_key_file" "name a Secret in root_key.existingSecret"
  "secrets_key_file" "name a Secret in secrets_key.existingSecret"
  "server" "only clients use it"
  "data_dir" "only `mainspring dev` uses it" }}
{{- if hasKey $.config $key }}{{ fail (printf "%s.%s: the chart decides it: %s" $at $key $instead) }}{{ end }}
{{- end }}
{{- range $key := list "pool" "concurrency" }}
{{- if hasKey (default dict $.config.worker) $key }}{{ fail (printf "%s.worker.%s: set worker.%s, or pools.NAME.%s for one pool" $at $key $key $key) }}{{ end }}
{{- end }}
{{- $providers := dict "llm" (default dict .config.llm) }}
{{- range $name, $provider := default dict .config.providers }}{{ $_ := set $providers (printf "providers.%s" $name) (default dict $provider) }}{{ end }}
{{- range $where, $provider := $providers }}
{{- if hasKey $provider "api_key" }}{{ fail (printf "%s.%s.api_key: %s: name a variable in api_key_env and its Secret in pools.NAME.providerKeys" $at $where $secret) }}{{ end }}
{{- end }}
{{- if hasKey (default dict .config.tools) "signing_secret" }}
{{- fail (printf "%s.tools.signing_secret: %s: set MAINSPRING_TOOLS_SIGNING_SECRET in extraEnv with a secretKeyRef" $at $secret) }}
{{- end }}
{{- end -}}
