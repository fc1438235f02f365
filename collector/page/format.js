// Numbers and times as people read them. An unknown is the word "unknown", never a zero.

export const UNKNOWN = "unknown";

export const TOKEN_CLASSES = [
  ["input_tokens", "input"],
  ["cache_read_tokens", "cache read"],
  ["cache_write_tokens", "cache write"],
  ["output_tokens", "output"],
];

const count = new Intl.NumberFormat("en-US");
const short = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

/** USD with as many decimals as the amount needs: cents from a dollar on, four significant digits below. */
export function usd(amount) {
  if (amount === null || amount === undefined) return UNKNOWN;
  if (amount === 0) return "$0.00";
  const decimals = amount >= 1 ? 2 : Math.min(9, 3 - Math.floor(Math.log10(amount)));
  return "$" + amount.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

export const tokens = (value) => (value === null || value === undefined ? UNKNOWN : count.format(value));
export const shortTokens = (value) => (value === null || value === undefined ? UNKNOWN : short.format(value));
export const number = (value) => count.format(value);

/** A UTC instant in the reader's own zone, to the second. */
export function time(iso) {
  if (!iso) return UNKNOWN;
  return new Date(iso).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

export function plural(value, one, many) {
  return `${count.format(value)} ${value === 1 ? one : many}`;
}
