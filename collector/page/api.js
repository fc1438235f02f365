// The page's only way to data: GET of the collector's own API, with the answer kept until it changes (ETag).

const kept = new Map();
const joined = new Map();
const TOKEN = "vm-usage-token";

/** Off loopback readers need the API's token; it is kept for this tab alone. */
export class TokenNeeded extends Error {}
export const useToken = (token) => sessionStorage.setItem(TOKEN, token);

/** The answer of one endpoint: the same object as long as it is unchanged. Throws an Error that says what to do. */
export async function get(path, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value));
  const url = `/api/local/${path}${query.size ? "?" + query : ""}`;
  const known = kept.get(url);
  let answer;
  try {
    answer = await fetch(url, { headers: headers(known), cache: "no-store" });
  } catch {
    throw new Error("The collector does not answer. Look at it with: systemctl status usage-collector");
  }
  if (answer.status === 304) return known.body;
  if (answer.status === 401) throw new TokenNeeded("This API needs its token.");
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(body.error?.message ?? body.error ?? `The collector answered ${answer.status} for ${path}.`);
  kept.set(url, { etag: answer.headers.get("ETag"), body });
  if (kept.size > 200) kept.delete(kept.keys().next().value);
  return body;
}

/** The rows of an endpoint that answers page by page: the same array as long as every page is unchanged. */
export async function all(path, parameters = {}) {
  const key = `${path} ${JSON.stringify(parameters)}`;
  const pages = [];
  let cursor;
  do {
    pages.push(await get(path, { ...parameters, cursor }));
    cursor = pages.at(-1).next_cursor;
  } while (cursor);
  const known = joined.get(key);
  if (known?.pages.length === pages.length && pages.every((page, index) => page === known.pages[index])) return known.rows;
  const rows = pages.flatMap((page) => page.rows);
  joined.clear(); // one is shown at a time
  joined.set(key, { pages, rows });
  return rows;
}

function headers(known) {
  const token = sessionStorage.getItem(TOKEN);
  return { ...(known && { "If-None-Match": known.etag }), ...(token && { Authorization: `Bearer ${token}` }) };
}
