// Money and tokens by day.

import type { JSX } from "preact";

import { caller, can, tenant, type Schemas } from "../api.js";
import { place, refine } from "../router.js";
import { Cost, Empty, Facts, Failed, Loading, Tokens } from "../ui/basics.js";
import { CopyAs } from "../ui/copyas.js";
import { bytes, count, money } from "../ui/format.js";
import { useGet } from "../ui/live.js";

type View = Schemas["TenantUsageView"];
type Day = View["days"][number];

const SPANS = ["7", "30", "92"];

export function Usage(): JSX.Element {
  const id = tenant.value || caller.value?.tenant_id || "ten_1";
  const days = place.value.query.get("days") ?? "30";
  const path = `/v1/tenants/${id}/usage`;
  const mayRead = can("GET /v1/tenants/{id}/usage");
  const usage = useGet<View>(mayRead ? path : undefined, { days }, 10_000);
  return (
    <>
      <h1>Usage</h1>
      <form class="filters">
        <label>
          <span>days</span>
          <select value={days} onChange={(event) => refine({ days: event.currentTarget.value })}>
            {SPANS.map((span) => (
              <option key={span}>{span}</option>
            ))}
          </select>
        </label>
      </form>
      {mayRead ? <Failed error={usage.error} /> : <p class="note">What a tenant used is for operators; a session shows what it used itself.</p>}
      {usage.value !== undefined ? <Figures of={usage.value} /> : mayRead && usage.error === undefined ? <Loading /> : null}
      <CopyAs asked={{ method: "GET", path, query: { days } }} />
    </>
  );
}

function Figures({ of }: { of: View }): JSX.Element {
  const days = [...of.days].reverse();
  const isPriced = days.some((day) => (day.usage.cost_usd ?? 0) > 0);
  const value = (day: Day): number => (isPriced ? (day.usage.cost_usd ?? 0) : day.usage.input_tokens + day.usage.output_tokens);
  if (of.total.calls === 0) return <Empty title="No model was called in this time" />;
  return (
    <>
      <Facts
        of={[
          ["cost", <Cost of={of.total.usage} />],
          ["model calls", count(of.total.calls)],
          ["sends", count(of.total.sends)],
          ["tokens", <Tokens of={of.total.usage} />],
          ["blobs", bytes(of.blob_bytes)],
        ]}
      />
      <Chart days={days} value={value} show={(n) => (isPriced ? money(n) : `${count(n)} tokens`)} />
      <div class="scroll" tabIndex={0} role="region" aria-label="Days">
        <table class="plain">
          <thead>
            <tr>
              <th scope="col">day (UTC)</th>
              <th scope="col" class="number">
                sends
              </th>
              <th scope="col" class="number">
                calls
              </th>
              <th scope="col" class="number">
                tokens
              </th>
              <th scope="col" class="number">
                cost
              </th>
            </tr>
          </thead>
          <tbody>
            {of.days
              .filter((day) => day.calls > 0 || day.sends > 0)
              .map((day) => (
                <tr key={day.day}>
                  <td>{day.day.slice(0, 10)}</td>
                  <td class="number">{count(day.sends)}</td>
                  <td class="number">{count(day.calls)}</td>
                  <td class="number">
                    <Tokens of={day.usage} />
                  </td>
                  <td class="number">
                    <Cost of={day.usage} />
                  </td>
                </tr>
              ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

const WIDTH = 640;
const HEIGHT = 120;

/** A bar for each day; the table below says the same in figures. */
function Chart({ days, value, show }: { days: Day[]; value: (day: Day) => number; show: (value: number) => string }): JSX.Element {
  const most = Math.max(...days.map(value), Number.MIN_VALUE);
  const step = WIDTH / days.length;
  return (
    <svg class="chart" viewBox={`0 0 ${WIDTH} ${HEIGHT + 16}`} role="img" aria-label={`Usage by day, at most ${show(most)}`}>
      {days.map((day, n) => {
        const height = (value(day) / most) * HEIGHT;
        return (
          <rect key={day.day} x={n * step + 1} y={HEIGHT - height} width={Math.max(1, step - 2)} height={height}>
            <title>
              {day.day.slice(0, 10)}: {show(value(day))}
            </title>
          </rect>
        );
      })}
      <text x="0" y={HEIGHT + 13}>
        {days[0]?.day.slice(0, 10)}
      </text>
      <text x={WIDTH} y={HEIGHT + 13} text-anchor="end">
        {days.at(-1)?.day.slice(0, 10)}
      </text>
      <text x="0" y="11">
        {show(most)}
      </text>
    </svg>
  );
}
