// Values as people read them.

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** A duration in the two largest units that matter. */
export function duration(ms: number): string {
  const abs = Math.max(0, ms);
  if (abs < SECOND) return `${Math.round(abs)} ms`;
  if (abs < 10 * SECOND) return `${(abs / SECOND).toFixed(1)} s`;
  if (abs < MINUTE) return `${Math.round(abs / SECOND)} s`;
  if (abs < HOUR) return two(abs, MINUTE, "min", SECOND, "s");
  if (abs < DAY) return two(abs, HOUR, "h", MINUTE, "min");
  return two(abs, DAY, "d", HOUR, "h");
}

function two(ms: number, large: number, name: string, small: number, less: string): string {
  const whole = Math.floor(ms / large);
  const rest = Math.floor((ms % large) / small);
  return rest === 0 || whole >= 10 ? `${whole} ${name}` : `${whole} ${name} ${rest} ${less}`;
}

export function count(value: number): string {
  if (value < 10_000) return value.toLocaleString("en");
  const units: [number, string][] = [
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ];
  for (const [unit, name] of units) {
    if (value >= unit) return `${(value / unit).toFixed(value >= 100 * unit ? 0 : 1)} ${name}`;
  }
  return String(value);
}

export function bytes(value: number): string {
  if (value < 1_024) return `${value} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let rest = value / 1_024;
  for (const unit of units) {
    if (rest < 1_024 || unit === "TiB") return `${rest < 10 ? rest.toFixed(1) : Math.round(rest)} ${unit}`;
    rest /= 1_024;
  }
  return `${value} B`;
}

/** Dollars; a price that is too small for cents shows two digits that say something. */
export function money(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "$0";
  if (value >= 0.1) return `$${value.toFixed(2)}`;
  return `$${Number(value.toPrecision(2))}`;
}

export function time(at: string | number | Date): string {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return String(at);
  const isToday = date.toDateString() === new Date().toDateString();
  const clock = date.toLocaleTimeString("en-GB");
  return isToday ? clock : `${date.toLocaleDateString("en-CA")} ${clock}`;
}

/** The first line of a text, cut to a length. */
export function line(text: string, max = 160): string {
  const first = text.trim().split("\n", 1)[0] ?? "";
  const letters = [...first];
  return letters.length > max ? `${letters.slice(0, max).join("")}…` : first;
}

/**
 * A text without what could make it look like something else: controls but tabs and line ends, and the characters that turn
 * the direction of what stands beside them.
 */
export function plain(text: string): string {
  // eslint-disable-next-line no-control-regex
  return text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
}

export function short(id: string): string {
  const cut = id.indexOf("_");
  return cut < 0 || id.length < cut + 14 ? id : `${id.slice(0, cut + 1)}…${id.slice(-8)}`;
}
