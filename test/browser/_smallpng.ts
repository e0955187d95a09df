/** Encodes a screenshot as a PNG with a palette. The file has about a third of the bytes of Chromium's PNG. */
import { crc32, deflateSync } from "node:zlib";
import type { Browser } from "playwright-core";

/** The maximum number of colours of a palette. */
const MAX_COLORS = 256;

/** @param png a screenshot. Its most frequent colours stay exact; each other colour becomes the nearest of these */
export async function shrinkPng(browser: Browser, png: Buffer): Promise<Buffer> {
  const { width, height, pixels } = await decode(browser, png);
  const counts = new Map<number, number>();
  for (const color of pixels) counts.set(color, (counts.get(color) ?? 0) + 1);
  const frequent = [...counts].toSorted(([, one], [, other]) => other - one);
  const palette = frequent.slice(0, MAX_COLORS).map(([color]) => color);
  const index = new Map(frequent.map(([color]) => [color, findNearest(palette, color)]));
  // Each row begins with the number of its filter: 0 for none.
  const rows = Buffer.alloc(height * (width + 1));
  pixels.forEach((color, i) => {
    rows[Math.floor(i / width) * (width + 1) + (i % width) + 1] = index.get(color) as number;
  });
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  // 8 bits for each pixel, which is an index of the palette.
  header.set([8, 3], 8);
  return Buffer.concat([
    png.subarray(0, 8),
    toChunk("IHDR", header),
    toChunk("PLTE", Buffer.from(palette.flatMap(toChannels))),
    toChunk("IDAT", deflateSync(rows, { level: 9 })),
    toChunk("IEND", Buffer.alloc(0)),
  ]);
}

/** Returns the pixels as `0xRRGGBB`. */
async function decode(
  browser: Browser,
  png: Buffer,
): Promise<{ width: number; height: number; pixels: readonly number[] }> {
  const page = await browser.newPage();
  const decoded = await page.evaluate(
    async (url) => {
      const image = await createImageBitmap(await (await fetch(url)).blob());
      const { width, height } = image;
      const canvas = new OffscreenCanvas(width, height).getContext("2d");
      canvas?.drawImage(image, 0, 0);
      const { data } = canvas?.getImageData(0, 0, width, height) ?? { data: [] };
      const pixels = Array.from(
        { length: width * height },
        (_, i) =>
          ((data[4 * i] as number) << 16) |
          ((data[4 * i + 1] as number) << 8) |
          (data[4 * i + 2] as number),
      );
      return { width, height, pixels };
    },
    `data:image/png;base64,${png.toString("base64")}`,
  );
  await page.close();
  return decoded;
}

function toChannels(color: number): [red: number, green: number, blue: number] {
  return [color >> 16, (color >> 8) & 255, color & 255];
}

function findNearest(palette: readonly number[], color: number): number {
  const distances = palette.map((each) => {
    const other = toChannels(each);
    return toChannels(color).reduce(
      (sum, value, i) => sum + (value - (other[i] as number)) ** 2,
      0,
    );
  });
  return distances.indexOf(Math.min(...distances));
}

function toChunk(type: string, data: Buffer): Buffer {
  const named = Buffer.concat([Buffer.from(type, "latin1"), data]);
  const framed = Buffer.alloc(named.length + 8);
  framed.writeUInt32BE(data.length, 0);
  framed.set(named, 4);
  framed.writeUInt32BE(crc32(named), named.length + 4);
  return framed;
}
