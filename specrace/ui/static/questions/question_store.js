// Keeps a list of questions and its races in this browser, so that a reload of the page or a restart of the server does
// not lose them. The tab knows its list's id; a list is deleted when the visitor clears it, or a day after its last
// race.
/** @import { Reel } from "../lib/wire.d.ts" */
/** @import { QuestionRow } from "./question_figures.js" */

const DATABASE = "specrace-questions";
const KEY = "specrace-question-list";
// A day.
const LIFETIME_MS = 86_400_000;

/**
 * A list as it is kept. `settings` and `documents` are those of its first race; null before.
 * @typedef {{
 *   id: string, changed: number, questions: string[], settings: any[] | null, documents: string[] | null,
 * }} KeptList
 */

/**
 * @template T
 * @param {IDBRequest<T>} request
 * @returns {Promise<T>}
 */
function resultOf(request) {
  return new Promise((resolve, reject) => {
    request.addEventListener("success", () => resolve(request.result));
    request.addEventListener("error", () => reject(request.error));
  });
}

/** @returns {Promise<IDBDatabase>} rejected where the browser keeps nothing: `open` may throw */
async function openDatabase() {
  const request = indexedDB.open(DATABASE, 1);
  request.addEventListener("upgradeneeded", () => {
    request.result.createObjectStore("lists", { keyPath: "id" });
    request.result.createObjectStore("races", { keyPath: ["list", "index"] });
  });
  return resultOf(request);
}

async function compress(reel) {
  const stream = new Blob([JSON.stringify(reel)]).stream().pipeThrough(new CompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

async function decompress(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

// The keys of a list's races, [id, index]: an array sorts after every number.
/** @param {string} id */
const racesOf = (id) => IDBKeyRange.bound([id], [id, []]);

// Opens the store. In a browser that keeps nothing, lists live as long as the page.
export async function openStore() {
  const database = await openDatabase().catch(() => undefined);
  const store = new QuestionStore(database);
  await store.deleteOld(Date.now());
  return store;
}

export class QuestionStore {
  /** @param {IDBDatabase | undefined} database */
  constructor(database) {
    this.database = database;
    /** @type {Map<number, ArrayBuffer>} the reels of a list that cannot be kept */
    this.reels = new Map();
  }

  // Whether lists outlive the page.
  get keeps() {
    return Boolean(this.database);
  }

  stores(mode) {
    const transaction = this.database.transaction(["lists", "races"], mode);
    return { lists: transaction.objectStore("lists"), races: transaction.objectStore("races") };
  }

  /**
   * The list of this tab and its rows; undefined if there is none.
   * @returns {Promise<{ list: KeptList, rows: (QuestionRow | undefined)[] } | undefined>}
   */
  async load() {
    // Where there is no database, reading the tab's storage may throw.
    const id = this.database && sessionStorage.getItem(KEY);
    if (!id) return undefined;
    const { lists, races } = this.stores("readonly");
    const [list, kept] = await Promise.all([resultOf(lists.get(id)), resultOf(races.getAll(racesOf(id)))]);
    if (!list) return undefined;
    /** @type {(QuestionRow | undefined)[]} */
    const rows = list.questions.map(() => undefined);
    for (const { index, row } of kept) rows[index] = row;
    return { list, rows };
  }

  /** @param {KeptList} list */
  async saveList(list) {
    if (!this.database) return;
    sessionStorage.setItem(KEY, list.id);
    await resultOf(this.stores("readwrite").lists.put(list));
  }

  /**
   * Keeps a race; `row` holds its figures.
   * @param {KeptList} list
   * @param {number} index
   * @param {QuestionRow} row
   * @param {Reel} reel
   */
  async saveRace(list, index, row, reel) {
    const packed = await compress(reel);
    if (!this.database) return void this.reels.set(index, packed);
    const { lists, races } = this.stores("readwrite");
    await Promise.all([resultOf(lists.put(list)), resultOf(races.put({ list: list.id, index, row, reel: packed }))]);
  }

  /**
   * @param {string} id
   * @param {number} index
   * @returns {Promise<Reel | undefined>}
   */
  async loadReel(id, index) {
    const packed = this.database
      ? (await resultOf(this.stores("readonly").races.get([id, index])))?.reel
      : this.reels.get(index);
    return packed && decompress(packed);
  }

  /** @param {string} id */
  async deleteList(id) {
    this.reels.clear();
    if (!this.database) return;
    const { lists, races } = this.stores("readwrite");
    await Promise.all([resultOf(lists.delete(id)), resultOf(races.delete(racesOf(id)))]);
  }

  // Deletes lists whose last race was a day before `now`, in milliseconds.
  /** @param {number} now */
  async deleteOld(now) {
    if (!this.database) return;
    const lists = await resultOf(this.stores("readonly").lists.getAll());
    for (const { id, changed } of lists) if (changed < now - LIFETIME_MS) await this.deleteList(id);
  }
}
