/** Creates a self-signed certificate for localhost byte by byte, so that tests need neither openssl nor a file. */
import { generateKeyPairSync, sign } from "node:crypto";

/** One DER element (X.690 §8.1): tag, length, content. */
function der(tag: number, ...content: Uint8Array[]): Buffer {
  const body = Buffer.concat(content);
  const { length } = body;
  const size =
    length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.of(tag, ...size), body]);
}

const sequence = (...content: Uint8Array[]): Buffer => der(0x30, ...content);
const hex = (text: string): Buffer => Buffer.from(text, "hex");

function time(date: Date): Buffer {
  // UTCTime: YYMMDDHHMMSSZ.
  return der(0x17, Buffer.from(date.toISOString().replace(/^..|[-:T]|\.\d+/g, "")));
}

export interface Certificate {
  cert: string;
  key: string;
}

/**
 * X.509 v3 (RFC 5280 §4.1) with an ECDSA key, valid for an hour around now.
 * @param shift milliseconds by which that hour is moved; below 0, the certificate has expired
 */
export function makeCertificate(shift = 0): Certificate {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const ecdsaWithSha256 = sequence(der(0x06, hex("2a8648ce3d040302")));
  const commonName = sequence(der(0x06, hex("550403")), der(0x0c, Buffer.from("localhost")));
  const name = sequence(der(0x31, commonName));
  const now = Date.now() + shift;
  const validity = sequence(time(new Date(now - 1_800_000)), time(new Date(now + 1_800_000)));
  const alternatives = sequence(der(0x82, Buffer.from("localhost")), der(0x87, hex("7f000001")));
  const subjectAltName = sequence(der(0x06, hex("551d11")), der(0x04, alternatives));
  const certificate = sequence(
    der(0xa0, der(0x02, Buffer.of(2))),
    der(0x02, Buffer.of(1)),
    ecdsaWithSha256,
    name,
    validity,
    name,
    publicKey.export({ type: "spki", format: "der" }),
    der(0xa3, sequence(subjectAltName)),
  );
  const signature = sign("sha256", certificate, privateKey);
  const whole = sequence(certificate, ecdsaWithSha256, der(0x03, Buffer.of(0), signature));
  const lines = whole.toString("base64").match(/.{1,64}/g) ?? [];
  return {
    cert: `-----BEGIN CERTIFICATE-----\n${lines.join("\n")}\n-----END CERTIFICATE-----\n`,
    key: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
  };
}
