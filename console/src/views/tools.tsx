// What agents can name: tools, servers of tools, skills.

import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { can, send, words, type Page, type Schemas } from "../api.js";
import { Ago, Command, Empty, Failed } from "../ui/basics.js";
import { tell } from "../ui/dialog.js";
import { bytes, plain } from "../ui/format.js";
import { useGet } from "../ui/live.js";
import { Plain } from "../ui/table.js";
import { pause } from "./workers.js";

export function Tools(): JSX.Element {
  const tools = useGet<Page<Schemas["ToolView"]>>("/v1/tools", {}, 10_000);
  const skills = useGet<Schemas["SkillList"]>("/v1/skills", { limit: 200 }, 10_000);
  const [skill, setSkill] = useState<string | undefined>(undefined);
  return (
    <>
      <h1>Tools and skills</h1>
      <Failed error={tools.error} />
      <Plain
        label="Tools"
        rows={tools.value?.data}
        id={(row) => `${row.kind} ${row.name}`}
        columns={[
          { name: "name", cell: (row) => <code>{plain(row.name)}</code> },
          { name: "kind", cell: (row) => (row.kind === "mcp_server" ? "MCP server" : "tool") },
          { name: "what it does", cell: (row) => plain(row.description) },
          { name: "presets", cell: (row) => <span class="soft">{row.presets.join(" ")}</span> },
          { name: "pools", cell: (row) => <span class="soft">{plain(row.pools.join(" "))}</span> },
          {
            name: "",
            cell: (row) =>
              can("POST /v1/tools/{name}/pause") && row.kind === "tool" ? (
                <button type="button" class="quiet" onClick={() => void pause("tool", row.name)}>
                  pause…
                </button>
              ) : null,
          },
        ]}
        empty={<Empty title="No worker has told its tools yet" />}
      />
      <h2>Skills</h2>
      <Failed error={skills.error} />
      <Plain
        label="Skills"
        rows={skills.value?.data}
        id={(row) => row.name}
        columns={[
          {
            name: "name",
            cell: (row) => (
              <button type="button" class="quiet" onClick={() => setSkill(row.name)}>
                {plain(row.name)}
              </button>
            ),
          },
          { name: "for", cell: (row) => plain(row.description) },
          { name: "files", isNumber: true, cell: (row) => row.files },
          { name: "size", isNumber: true, cell: (row) => bytes(row.bytes) },
          { name: "since", cell: (row) => <Ago at={row.created_at} /> },
        ]}
        empty={
          <Empty title="No skill">
            <Command text="mainspring skills add examples/skills" />
          </Empty>
        }
      />
      {(skills.value?.warnings ?? []).map((warning) => (
        <p key={warning.name} class="note">
          {plain(warning.name)} was left out: {plain(warning.errors.map((fault) => JSON.stringify(fault)).join("; "))}
        </p>
      ))}
      {skill === undefined ? null : <Skill name={skill} />}
    </>
  );
}

function Skill({ name }: { name: string }): JSX.Element {
  const skill = useGet<{ files?: { path: string; bytes: number }[] }>(`/v1/skills/${encodeURIComponent(name)}`, {}, 0);
  const [text, set] = useState<{ path: string; text: string } | undefined>(undefined);
  const open = async (path: string): Promise<void> => {
    try {
      const response = await send({ method: "GET", path: `/v1/skills/${encodeURIComponent(name)}/files/${path.split("/").map(encodeURIComponent).join("/")}` });
      set({ path, text: response.ok ? await response.text() : `${response.status}` });
    } catch (error) {
      tell(words(error), true);
    }
  };
  return (
    <article>
      <h3>{plain(name)}</h3>
      <Failed error={skill.error} />
      <ul>
        {(skill.value?.files ?? []).map((file) => (
          <li key={file.path}>
            <button type="button" class="quiet" onClick={() => void open(file.path)}>
              <code>{plain(file.path)}</code>
            </button>{" "}
            <span class="soft">{bytes(file.bytes)}</span>
          </li>
        ))}
      </ul>
      {text === undefined ? null : (
        <>
          <p class="title">{plain(text.path)}</p>
          <pre class="wrap">{plain(text.text)}</pre>
        </>
      )}
    </article>
  );
}
