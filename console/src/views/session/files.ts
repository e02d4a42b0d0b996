// Files that people take from the page, and give to it.

export function download(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob);
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** What a picture is, by its first bytes: its name may say anything. */
export function pictureOf(head: Uint8Array): string | undefined {
  const text = String.fromCharCode(...head);
  if (text.startsWith("\u0089PNG")) return "image/png";
  if (head[0] === 0xff && head[1] === 0xd8) return "image/jpeg";
  if (text.startsWith("GIF8")) return "image/gif";
  if (text.startsWith("RIFF") && text.slice(8, 12) === "WEBP") return "image/webp";
  return undefined;
}

/** A file beside a message, as the API takes it. */
export interface AttachedFile {
  name: string;
  part: Record<string, unknown>;
}

/** A picture is one by its bytes; everything else is a file. */
export async function partOf(file: File): Promise<AttachedFile> {
  const data = new Uint8Array(await file.arrayBuffer());
  let binary = "";
  for (let at = 0; at < data.length; at += 0x8000) binary += String.fromCharCode(...data.subarray(at, at + 0x8000));
  const kind = pictureOf(data.subarray(0, 12));
  const source = { type: "base64", media_type: kind ?? (file.type === "" ? "application/octet-stream" : file.type), data: btoa(binary) };
  const part = kind === undefined ? { type: "file", name: file.name, source } : { type: "image", source };
  return { name: file.name, part };
}
