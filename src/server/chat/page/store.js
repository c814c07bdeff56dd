// Conversations in this browser: an IndexedDB database with one object for each. Where the browser
// gives no database (a private window), they last as long as the page.

const kName = 'ebb-chat';
const kTable = 'conversations';
const memory = new Map();

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

async function run(mode, work) {
  const database = await opened;
  if (database === null) return null;
  return new Promise((resolve, reject) => {
    const request = work(database.transaction(kTable, mode).objectStore(kTable));
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

export async function all() {
  return (await run('readonly', (table) => table.getAll())) ?? [...memory.values()];
}

export async function save(conversation) {
  memory.set(conversation.id, conversation);
  await run('readwrite', (table) => table.put(conversation));
}

export async function remove(id) {
  memory.delete(id);
  await run('readwrite', (table) => table.delete(id));
}
