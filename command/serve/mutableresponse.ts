/**
 * Returns a response with mutable header fields: a copy if they are immutable, as in a response of `fetch` or of
 * `Response.redirect`, which a hook may return. A response of the proxy is not copied, because the server sends its body faster
 * than that of a copy.
 */
export function toMutable(response: Response): Response {
  try {
    // `delete` throws if the fields are immutable, even if the field does not exist.
    response.headers.delete("fetchway-immutable");
    return response;
  } catch {
    return new Response(response.body, response);
  }
}
