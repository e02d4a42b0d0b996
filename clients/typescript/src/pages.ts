// Lists.

/** A page of a list. */
export interface Page<T> {
  data: T[];
  next_cursor?: string | null;
}

/** A list: iterate over it for all of its items, page by page. */
export class Pages<T> implements AsyncIterable<T> {
  readonly #get: (cursor: string | undefined) => Promise<Page<T>>;

  constructor(get: (cursor: string | undefined) => Promise<Page<T>>) { this.#get = get; }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    for await (const page of this.pages()) yield* page.data;
  }

  /** Page by page, from this cursor on. */
  async *pages(cursor?: string): AsyncGenerator<Page<T>, void, undefined> {
    let next: string | null | undefined = cursor;
    do {
      const page: Page<T> = await this.#get(next ?? undefined);
      yield page;
      next = page.next_cursor;
    } while (next);
  }

  /** The first items, at most so many. */
  async first(count: number): Promise<T[]> {
    const items: T[] = [];
    for await (const item of this) {
      if (items.push(item) >= count) break;
    }
    return items;
  }
}
