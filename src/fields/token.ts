/** A token, such as a method or the name of a header field (RFC 9110 §5.6.2). */
export const TOKEN: RegExp = /^[!#$%&'*+.^`|~\w-]+$/;
/**
 * Matches a character that is not allowed in a field value. A line end, for example, would begin another field, or
 * another request.
 */
export const NOT_IN_VALUE: RegExp = /[^\t -~\u0080-\u00ff]/;
/** Matches a request target that can be sent unchanged. */
export const REQUEST_TARGET: RegExp = /^[!-~\u0080-\u00ff]+$/;
