/** Creates self-signed certificates for localhost, so that tests need neither openssl nor a file. */
import { generate } from "selfsigned";

export interface Certificate {
  cert: string;
  key: string;
}

/**
 * Creates a certificate with an ECDSA key. It is valid from 30 minutes before now to 30 minutes after now.
 * @param shift milliseconds by which both ends of this period are moved; with −3,600,000, for example, the certificate
 * has expired
 */
export async function makeCertificate(shift = 0): Promise<Certificate> {
  const now = Date.now() + shift;
  const { cert, private: key } = await generate([{ name: "commonName", value: "localhost" }], {
    keyType: "ec",
    algorithm: "sha256",
    notBeforeDate: new Date(now - 1_800_000),
    notAfterDate: new Date(now + 1_800_000),
    extensions: [
      {
        name: "subjectAltName",
        altNames: [
          { type: 2, value: "localhost" },
          { type: 7, ip: "127.0.0.1" },
        ],
      },
    ],
  });
  return { cert, key };
}
