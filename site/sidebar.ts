/** The pages of the site in the groups of the sidebar: titles, and files relative to the project. */
export const sidebar: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  Start: {
    "What Fetchway is": "README.md",
    "Quick start": "docs/quickstart.md",
    Frameworks: "docs/frameworks.md",
    "Coming from another proxy": "docs/coming-from.md",
    "Coming from nginx or Caddy": "docs/coming-from-nginx.md",
    Targets: "docs/targets.md",
    "Several upstreams": "docs/upstreams.md",
  },
  Change: {
    Recipes: "docs/recipes.md",
    "Changing bodies": "docs/bodies.md",
    "Hooks and interceptors": "docs/hooks.md",
    "Redirects, retries, cookies": "docs/redirects.md",
    Examples: "examples/README.md",
  },
  Protocols: {
    WebSockets: "docs/websockets.md",
    "HTTP/2, gRPC, trailers": "docs/http2.md",
  },
  Operate: {
    Connections: "docs/connections.md",
    "The command": "docs/command.md",
    "Its log": "docs/log.md",
    "Its limits": "docs/limits.md",
    Deployments: "docs/deploy.md",
    Performance: "docs/performance.md",
    Security: "docs/security.md",
    "Security policy": "SECURITY.md",
  },
  Reference: {
    Options: "docs/options.md",
    "Runtimes and their limits": "docs/runtimes.md",
    "Other HTTP clients": "docs/clients.md",
    "Conformance with the RFCs": "docs/conformance.md",
    "Other proxies: the scoreboard": "docs/scoreboard.md",
    Size: "docs/size.md",
  },
  Benchmarks: {
    "How it is measured": "bench/README.md",
    "Latency at fixed rates": "bench/tail.md",
    "One failing upstream of three": "bench/upstreams.md",
    "TLS, HTTP/2, undici": "bench/protocols.md",
    "What options cost": "bench/options.md",
  },
  "Take part": {
    Changes: "CHANGELOG.md",
    Contributing: "CONTRIBUTING.md",
    Releasing: "RELEASING.md",
  },
};
