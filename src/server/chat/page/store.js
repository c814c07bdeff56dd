// Stores conversations in this browser: an IndexedDB database with one object for each, shared by
// all tabs of this server. Each write changes the object as stored at that moment, in one
// transaction, and is announced to the other tabs. If the browser gives no database (a private
// window), conversations last as long as the page.

const kName = 'ebb-chat';
const kTable = 'conversations';
const memory = new Map();
const channel = globalThis.BroadcastChannel ? new BroadcastChannel(kName) : null;

const opened = new Promise((resolve) => {
  let request;
  try {
    request = indexedDB.open(kName, 1);
  } catch {
    return resolve(null);
  }
  request.onupgradeneeded = () => request.result.createObjectStore(kTable, { keyPath: 'id' });
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => resolve(null);
});

// Runs `work` on the table. The promise is fulfilled only when the transaction is durable.
async function transact(mode, work) {
  const database = await opened;
  if (database === null) return false;
  return new Promise((resolve, reject) => {
    const transaction = database.transaction(kTable, mode);
    transaction.oncomplete = () => resolve(true);
    transaction.onabort = () => reject(transaction.error);
    work(transaction.objectStore(kTable));
  });
}

async function read(ask, inMemory) {
  let request;
  return await transact('readonly', (table) => { request = ask(table); }) ? request.result : inMemory();
}

export function all() { return read((table) => table.getAll(), () => [...memory.values()]); }

export function load(id) { return read((table) => table.get(id), () => memory.get(id)); }

// Replaces the object stored under `id` by change(object), where null stands for a missing one, and
// returns the new object. A conversation that was removed stays removed.
export async function update(id, change, news = {}) {
  let result;
  const changed = (stored) => result = stored?.removed ? stored : change(stored ?? null);
  const is_durable = await transact('readwrite', (table) => {
    const request = table.get(id);
    request.onsuccess = () => table.put(changed(request.result));
  });
  if (!is_durable) memory.set(id, changed(memory.get(id)));
  channel?.postMessage({ id, ...news });
  return result;
}

// Replaces a conversation by a mark, so that no tab that still has it stores it again.
export function remove(id) { return update(id, () => ({ id, removed: true })); }

// Calls heard({id, ...news}) for each change by another tab.
export function listen(heard) {
  if (channel !== null) channel.onmessage = ({ data }) => heard(data);
}
