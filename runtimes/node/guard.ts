// First of all imports: what comes after it fails on Workers with messages that help nobody.
if (globalThis.navigator?.userAgent === "Cloudflare-Workers") {
  throw new Error(
    'fetchway: this is the entry for Node; bundle with the condition "workerd" (wrangler sets it; ' +
      'with esbuild: conditions: ["workerd"])',
  );
}
