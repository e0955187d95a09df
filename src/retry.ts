/** When a request is sent once more. What is left out has its default. */
export interface RetryOptions {
  /** How often at most, after the first. */
  attempts?: number;
  /** Methods that may be repeated. */
  methods?: readonly string[];
  /** Statuses that count as no response. */
  statusCodes?: readonly number[];
  /** Milliseconds before each. */
  delay?: number;
}
