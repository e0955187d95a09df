export interface RequestEnd {
  readonly method: string;
  readonly path: string;
  readonly authority: string;
  readonly clientAddress: string | undefined;
  readonly upstream: string | undefined;
  readonly status: number;
  readonly protocol: string | undefined;
  readonly error: unknown;
  readonly attempts: number;
  readonly reused: boolean | undefined;
  readonly bytesIn: number;
  readonly bytesOut: number | undefined;
  readonly startedAt: number;
  readonly timings: {
    readonly queue?: number;
    readonly connect?: number;
    readonly firstByte?: number;
    readonly total: number;
  };
  readonly request: Request;
}
