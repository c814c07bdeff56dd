// Sends requests to the server that serves this page, and never to another host.

const kKeyName = 'ebb-key';

// ApiError is an error that the server reported, or the lack of an answer (status 0).
export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export function setKey(key) { sessionStorage.setItem(kKeyName, key); }

function headers(more = {}) {
  const key = sessionStorage.getItem(kKeyName);
  return key ? { ...more, Authorization: `Bearer ${key}` } : more;
}

async function errorOf(response) {
  try {
    const { error } = await response.json();
    return new ApiError(response.status, error.code ?? error.type, error.message);
  } catch {
    return new ApiError(response.status, '', `the server answered ${response.status}`);
  }
}

export async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, { ...options, headers: headers(options.headers) });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(0, 'unreachable', 'The server does not answer.');
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

export async function get(path) {
  return (await ask(path, {})).json();
}

export async function send(method, path, body) {
  const options = { method };
  if (body !== undefined) {
    options.headers = { 'Content-Type': 'application/json' };
    options.body = JSON.stringify(body);
  }
  return (await ask(path, options)).json();
}

// Yields the JSON of each event of a stream, up to the end of a chat. Throws an error if a stream
// ends early: the server has stopped or the connection is lost.
export async function* streamEvents(path, options) {
  const response = await ask(path, options);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    let read;
    try {
      read = await reader.read();
    } catch (error) {
      if (error.name === 'AbortError') throw error;
      throw new ApiError(0, 'unreachable', 'The connection to the server was lost.');
    }
    if (read.done) throw new ApiError(0, 'unreachable', 'The connection to the server was lost.');
    text += read.value;
    let at = 0;
    for (let end; (end = text.indexOf('\n\n', at)) >= 0; at = end + 2) {
      const event = text.slice(at, end);
      if (!event.startsWith('data: ')) continue;  // a comment that keeps the connection open
      const data = event.slice(6);
      if (data === '[DONE]') return;
      const json = JSON.parse(data);
      if (json.error) throw new ApiError(500, json.error.code, json.error.message);
      yield json;
    }
    text = text.slice(at);
  }
}

export function streamChat(body, signal) {
  return streamEvents('/v1/chat/completions', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
}
