/* SPDX-License-Identifier: Apache-2.0 */
/*
 * glyphs.h - how people write the ten digits: a table of strokes
 */
#ifndef TRAIN_GLYPHS_H
#define TRAIN_GLYPHS_H

#include <stdbool.h>
#include <stdint.h>

enum { GLYPH_STROKES = 3, GLYPH_POINTS = 14, GLYPH_VARIANTS = 3 };

/* A curve through its points, or a line from one to the next. */
struct glyph_stroke {
	int count; /* of points; 0: no stroke */
	bool straight;
	int8_t points[GLYPH_POINTS][2]; /* x from 0 to 60, y from 0 (top) to 100 */
};

struct glyph {
	struct glyph_stroke strokes[GLYPH_STROKES];
};

struct glyph_digit {
	int variants;
	struct glyph glyphs[GLYPH_VARIANTS];
};

extern const struct glyph_digit glyph_digits[10];

#endif /* TRAIN_GLYPHS_H */
