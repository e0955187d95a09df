/** A token, such as a method or the name of a header field (RFC 9110 §5.6.2). */
export const TOKEN: RegExp = /^[!#$%&'*+.^`|~\w-]+$/;
