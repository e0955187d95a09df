/** A heading of level 3 and a code block, with nothing between them. */
const HEADED_BLOCK = "### .+\\n\\n```\\w+\\n(?:(?!```).*\\n)*```\\n\\n";
const SEVERAL = new RegExp(`^(?:${HEADED_BLOCK}){2,}`, "gm");

/**
 * Makes tabs of code blocks that follow each other, each below its own heading. GitHub, which shows the same documents, has
 * no tabs.
 */
export function toTabs(document: string): string {
  return document.replaceAll(SEVERAL, (blocks) => {
    const tabs = blocks.replaceAll(/^### (.+)\n\n```(\w+)$/gm, "```$2 [$1]");
    return `::: code-group\n\n${tabs}:::\n\n`;
  });
}
