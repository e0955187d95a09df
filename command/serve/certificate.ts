/** The certificates of the command: its own, and those that it trusts. */
import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import process from "node:process";
import { createSecureContext } from "node:tls";
import type { TlsOptions } from "#fetchway";
import { quoteInput } from "#fetchway/options";
import type { Server } from "srvx";
import { UsageError } from "../flags/read.ts";
import { tell } from "./tell.ts";

/** The texts of a certificate with its chain, and of its key, in PEM. */
export interface CertificateTexts {
  readonly cert: string;
  readonly key: string;
}

interface Paths {
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
}

/**
 * Reads the certificate of the server.
 * @returns undefined if neither file is given
 * @throws UsageError that names the option and the fix
 */
export function readCertificate({ cert, key }: Paths): CertificateTexts | undefined {
  if (cert === undefined && key === undefined) return undefined;
  if (key === undefined) throw new UsageError("--cert needs --key: the file of its private key");
  if (cert === undefined) throw new UsageError("--key needs --cert: the file of its certificate");
  const texts = {
    cert: readPem("--cert", cert, "CERTIFICATE"),
    key: readPem("--key", key, "PRIVATE KEY"),
  };
  try {
    createSecureContext(texts);
  } catch (error) {
    const { code, message } = error as Error & { code?: string };
    if (code === "ERR_OSSL_X509_KEY_VALUES_MISMATCH") {
      throw new UsageError(
        `--key ${quoteInput(key)}: it is not the key of the first certificate in ${cert}`,
      );
    }
    throw new UsageError(`--cert ${quoteInput(cert)} cannot be used: ${message}`);
  }
  return texts;
}

interface TrustOptions {
  readonly ca?: string | undefined;
  readonly insecure?: boolean | undefined;
}

/**
 * Reads the certificates of the authorities to trust.
 * @throws UsageError that names the option and the fix
 */
function readAuthorities(path: string): string[] {
  const pem = readPem("--ca", path, "CERTIFICATE");
  const certificate = /-----BEGIN (?:TRUSTED )?CERTIFICATE-----.+?-----END [^-]+-----/gs;
  return Array.from(pem.matchAll(certificate), ([block]) => {
    // The TLS options ignore a certificate that cannot be read.
    try {
      return new X509Certificate(block).toString().trim();
    } catch (error) {
      const { message } = error as Error;
      throw new UsageError(`--ca ${quoteInput(path)} cannot be used: ${message}`);
    }
  });
}

/**
 * Returns the TLS options for connections to upstreams, and prints a warning if they are not safe.
 * @throws UsageError that names the option and the fix
 */
export function readTrust({ ca, insecure }: TrustOptions): TlsOptions | undefined {
  if (insecure === true) {
    console.error(
      "fetchway: --insecure accepts any certificate of an upstream: others on the network can read and change everything",
    );
    return { rejectUnauthorized: false };
  }
  return ca === undefined ? undefined : { ca: readAuthorities(ca) };
}

function readPem(flag: string, path: string, what: "CERTIFICATE" | "PRIVATE KEY"): string {
  const label = `${flag} ${quoteInput(path)}`;
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    throw new UsageError(`${label} cannot be read: ${explainCode(error)}`);
  }
  if (/-----BEGIN ENCRYPTED PRIVATE KEY-----|^Proc-Type: 4,ENCRYPTED/m.test(text)) {
    throw new UsageError(
      `${label}: the key is encrypted; write it decrypted with openssl pkey -in … -out …`,
    );
  }
  if (new RegExp(`-----BEGIN [A-Z ]*${what}-----`).test(text)) return text;
  throw new UsageError(
    `${label}: there is no ${what.toLowerCase()} in PEM (-----BEGIN ${what}-----) in it`,
  );
}

function explainCode(error: unknown): string {
  const { code, message } = error as Error & { code?: string };
  if (code === "ENOENT") return "there is no such file";
  if (code === "EACCES") return "the user of this process may not read it";
  if (code === "EISDIR") return "it is a folder";
  return message;
}

/** The member of Node's TLS servers that is used here. */
interface SecureServer {
  setSecureContext(texts: CertificateTexts): void;
}

/**
 * Reads the certificate again on SIGHUP. New connections get the new one, and running connections keep theirs. If the
 * files are wrong, the server keeps the certificate that it has.
 */
export function reloadOnSignal(server: Server, paths: Paths): void {
  process.on("SIGHUP", () => {
    const secure = server.node?.server as Partial<SecureServer> | undefined;
    if (secure?.setSecureContext === undefined) {
      console.error(
        "fetchway: the certificate is not read again: only Node's server can change it; restart the command",
      );
      return;
    }
    try {
      secure.setSecureContext(readCertificate(paths) as CertificateTexts);
      tell("the certificate has been read again");
    } catch (error) {
      console.error(`fetchway: the certificate stays as it is: ${(error as Error).message}`);
    }
  });
}
