/** RFC 7239, Forwarded: what it requires of a proxy that writes the field, and of one that reads it. */
export const rfc7239 = {
  "7239-4-once": {
    level: "MUST NOT",
    role: "sender",
    says: "Write a parameter more than once in an element.",
  },
  "7239-4-grammar": {
    level: "MUST",
    role: "sender",
    says: "Quote values that are not tokens, such as a host with a port or an IPv6 address in its brackets.",
  },
  "7239-5.1-by": {
    level: "SHOULD",
    role: "proxy",
    says: "Write an obfuscated identifier in by, unless it is configured otherwise.",
  },
  "7239-5.2-for": {
    level: "SHOULD",
    role: "proxy",
    says: "Write an obfuscated identifier in for, unless it is configured otherwise.",
    foreign:
      'The option xfwd: "forwarded" is the configuration: it asks for the address of the client.',
  },
  "7239-5.4-proto": {
    level: "MUST",
    role: "proxy",
    says: "Write the name of a URI scheme in proto.",
  },
  "7239-6-port": {
    level: "MUST",
    role: "recipient",
    says: "Distinguish an obfuscated port from a number by its underscore.",
  },
  "7239-6.1-ipv6": {
    level: "SHOULD",
    role: "sender",
    says: "Write IPv6 addresses in the form of RFC 5952.",
  },
  "7239-6.3-obfuscated": {
    level: "MUST",
    role: "proxy",
    says: "Begin an obfuscated identifier with an underscore, and make it of letters, digits, dots, underscores and hyphens.",
  },
} as const;
