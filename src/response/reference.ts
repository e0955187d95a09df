/**
 * What a URL reference of a response means, as browsers read it.
 * @returns null if it is no URL
 */
export function parseReference(reference: string, base?: string | URL): URL | null {
  // Bytes above 0x7f are meant as they are, not as the characters that they are read as.
  const bytes = reference.replaceAll(
    /[\u0080-\u00ff]/g,
    (byte) => `%${byte.charCodeAt(0).toString(16)}`,
  );
  return URL.parse(bytes, base);
}
