import { isName, type HeaderList } from "../fields/headers.ts";
import type { TargetAddress } from "../target/target.ts";
import type { UpstreamResponse } from "../transport/message.ts";
import type { BalancedMember } from "./member.ts";
import { cutCookies, readCookies } from "./requestcookies.ts";
import { hmac } from "./sha256.ts";
import { mayShare } from "./sharedcaches.ts";
import type { ClientKeeper, PickRequest } from "./upstreams.ts";

/** The cookie that keeps clients at their upstream. */
export interface CookieOptions {
  /**
   * The name of the cookie. The app's own cookies, and the cookie of another target under the same host, need other names.
   * @default "fetchway"
   */
  name?: string;
  /**
   * The key of the hash from which the values of the cookie are made: at least 32 random characters, the same in all
   * processes with these upstreams, and after a restart. A client that has the secret can compute the cookie of every
   * upstream. Without this option, each target generates a secret, and its cookies are not valid after a restart or in
   * another process.
   * @default a random one
   */
  secret?: string;
  /**
   * Called once with the generated secret, before the first cookie is set, if `secret` is not set. The proxy prints nothing
   * itself.
   * @example (secret) => console.warn("clients lose their upstreams with the next restart")
   */
  onSecretMade?: (secret: string) => void;
}

/** The form of a cookie's value: 128 bits in base64url. */
const VALUE = /^"?([\w-]{22})"?$/;

/**
 * Keeps clients at the upstream that has answered them, by a cookie. The value of the cookie is a keyed hash of the
 * upstream's name. It stays the same for the same name and secret, it reveals no address, and only the proxy can compute
 * it.
 */
export class StickyCookie implements ClientKeeper {
  readonly #name: string;
  #secret: string | undefined;
  readonly #onSecretMade: CookieOptions["onSecretMade"];
  /** Returns whether the response to a request without this cookie sets the cookie. */
  readonly #isFor: (request: PickRequest) => boolean;
  #key: Uint8Array | undefined;
  readonly #byTarget: Map<TargetAddress, { readonly member: BalancedMember; value: string }> =
    new Map();
  readonly #byValue: Map<string, BalancedMember> = new Map();
  /**
   * The upstreams whose values are not computed yet. The values are computed late, because Workers have no random numbers for
   * a secret before their first request.
   */
  #added: BalancedMember[] = [];

  constructor(
    { name = "fetchway", secret, onSecretMade }: CookieOptions,
    isFor: (request: PickRequest) => boolean,
  ) {
    this.#name = name;
    this.#secret = secret;
    this.#onSecretMade = onSecretMade;
    this.#isFor = isFor;
  }

  add(member: BalancedMember): void {
    this.#added.push(member);
  }

  delete(member: BalancedMember): void {
    this.#computeValues();
    const known = this.#byTarget.get(member.target);
    this.#byTarget.delete(member.target);
    if (known !== undefined) this.#byValue.delete(known.value);
  }

  /**
   * Returns the upstream of the client that sends a request; undefined if its cookies name no upstream that gets requests.
   * A client may send several cookies, for example one that another host of the same site has set. A cookie whose upstream
   * gets no requests does not hide a later one.
   */
  find(request: PickRequest, able: readonly BalancedMember[]): BalancedMember | undefined {
    const values = this.#read(request);
    if (values.length === 0) return undefined;
    this.#computeValues();
    for (const value of values) {
      const member = this.#byValue.get(value);
      if (member !== undefined && able.includes(member)) return member;
    }
    return undefined;
  }

  /** Whether a cookie of the client names this upstream. */
  names({ target }: Pick<BalancedMember, "target">, request: PickRequest): boolean {
    const value = this.#byTarget.get(target)?.value;
    return value !== undefined && this.#read(request).includes(value);
  }

  cut(headers: HeaderList): void {
    // A cookie of this name whose value has another form belongs to the app, so keep it.
    cutCookies(headers, this.#name, (value) => VALUE.test(value));
  }

  fieldsFor(
    target: TargetAddress,
    request: PickRequest,
    { status, headers }: UpstreamResponse,
    isSecure: boolean,
  ): HeaderList {
    this.#computeValues();
    const known = this.#byTarget.get(target);
    if (known === undefined || known.member.isDraining) return [];
    // Set no cookie in the response of a failing upstream. Set none in a 304 or in a response to HEAD either, because a
    // cache updates a stored response with the fields of these (RFC 9111 §4.3.4, §4.3.5).
    if (status >= 500 || status === 304 || request.method === "HEAD") return [];
    const values = this.#read(request);
    if (values.includes(known.value)) return [];
    if (values.length === 0 && !this.#isFor(request)) return [];
    if (sets(headers, this.#name)) return [];
    const sharing = status === 101 ? "never" : mayShare(headers);
    if (sharing === "as-it-says") return [];
    const attributes = `Path=/; HttpOnly; SameSite=Lax${isSecure ? "; Secure" : ""}`;
    const fields = ["Set-Cookie", `${this.#name}=${known.value}; ${attributes}`];
    return sharing === "never" ? fields : [...fields, "Cache-Control", "private"];
  }

  /** Returns the values of the client's cookies with this name, if they have the form of the proxy's values. */
  #read({ headers }: PickRequest): string[] {
    return readCookies(headers, this.#name).flatMap((value) => VALUE.exec(value)?.[1] ?? []);
  }

  #computeValues(): void {
    if (this.#added.length === 0) return;
    const encoder = new TextEncoder();
    this.#key ??= encoder.encode((this.#secret ??= this.#makeSecret()));
    for (const member of this.#added) {
      const value = toBase64Url(hmac(this.#key, encoder.encode(member.name)).subarray(0, 16));
      this.#byTarget.set(member.target, { member, value });
      this.#byValue.set(value, member);
    }
    this.#added = [];
  }

  #makeSecret(): string {
    const secret = toBase64Url(crypto.getRandomValues(new Uint8Array(32)));
    this.#onSecretMade?.(secret);
    return secret;
  }
}

/** Whether header fields of a response set a cookie with this name. */
function sets(headers: HeaderList, name: string): boolean {
  return headers.some(
    (value, i) =>
      i % 2 === 1 &&
      isName(headers[i - 1] as string, "set-cookie") &&
      value.split(/[=;]/, 1)[0]?.trim() === name,
  );
}

function toBase64Url(bytes: Uint8Array): string {
  const text = btoa(String.fromCharCode(...bytes));
  return text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
