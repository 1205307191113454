/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels-list.h - a convolution's gradients, computed from the list of its nonzero output
 * gradients
 *
 * Each listed gradient affects a window of 3 x 3 input pixels. Products of the gradient and the
 * input are added to the gradient of one output channel's weights. Products of the gradient and the
 * weights are added to the gradient of the input. Sums stay in registers as long as possible. Sums
 * for weights stay there while the gradients of one output channel are visited, in bands of rows
 * that fit into the first-level cache. Sums for the input stay there while all output channels of
 * one pixel are visited.
 */
enum { TAPS = 9, LINE = 64, LINES = 8 /* cache lines per prefetch */ };

/* --- Make the list -------------------------------------------------------------------------- */

/* Source of a list: dy, and the arrays that determine which of its elements are nonzero. */
struct source {
	const void *dy, *y;
	const uint8_t *which, *keep;
	float scale;
};

INLINE v_f32 source_value(const struct source *source, size_t at, size_t n, bool half)
{
	v_f32 value = load_some(source->dy, at, n, half) * source->scale;

	value = only(load_some(source->y, at, n, half) > 0, value);
	return source->keep ? only(spread(some_bits(source->keep, at, n)), value) : value;
}

/*
 * Makes the list for at most KERNEL_WORD channels of one pooled pixel, starting with channel [c].
 * Channel 0 of the pixel is at index [at] of the source's arrays.
 */
INLINE void list_word(const struct source *source, size_t at, size_t c, size_t out, float *values,
		      uint64_t *bits, float *sums, bool half)
{
	size_t end = out - c < KERNEL_WORD ? out : c + KERNEL_WORD;
	uint64_t filled = 0, right = 0, down = 0;

	for (size_t k = 0; c < end; c += LANES, k += LANES) {
		size_t n = count_in_vector(c, end);
		v_f32 value = source_value(source, at + c, n, half);
		v_i32 which = load_bytes(source->which + at + c, n);

		store(values, c, value, false);
		store(sums, c, load(sums, c, false) + value, false);
		filled |= (uint64_t)bits_of(value != 0) << k;
		right |= (uint64_t)bits_of((which & 1) != 0) << k;
		down |= (uint64_t)bits_of((which & 2) != 0) << k;
	}
	bits[0] = filled & ~right & ~down;
	bits[1] = filled & right & ~down;
	bits[2] = filled & ~right & down;
	bits[3] = filled & right & down;
}

INLINE void list_all(size_t out, size_t images, const struct source *source,
		     struct kernel_list *list, float *bias, bool half)
{
	size_t pixels = list->rows * list->columns, words = list->words;
	float *sums = list->channel; /* sums for one image */

	memset(bias, 0, out * sizeof(*bias));
	for (size_t i = 0; i < images; i++) {
		memset(sums, 0, list->pitch * sizeof(*sums));
		for (size_t p = i * pixels; p < (i + 1) * pixels; p++)
			for (size_t w = 0; w < words; w++)
				list_word(source, p * out, w * KERNEL_WORD, out,
					  list->values + p * list->pitch,
					  list->bits + (p * words + w) * 4, sums, half);
		for (size_t c = 0; c < out; c++)
			bias[c] += sums[c];
	}
}

static TARGET void list(const struct kernel_window *window, size_t images, const void *dy,
			const void *y, const uint8_t *which, const uint8_t *keep, float scale,
			struct kernel_list *list, float *bias, enum ddp_type type)
{
	struct source source = {dy, y, which, keep, scale};

	FOR_TYPE(list_all, (size_t)window->out, images, &source, list, bias);
}

/* --- Blocks of input channels --------------------------------------------------------------- */

/*
 * Input channels are divided into blocks of [width] channels, as many as fit into registers.
 * Therefore all distances within a block are constants. An array of [rows] rows with [in] channels
 * becomes in / width blocks of [rows] rows with [width] channels.
 */
enum { VECTORS = LANES == 16 ? 2 : 1 };

INLINE size_t block_width(size_t in)
{
	return in % (VECTORS * LANES) == 0 ? VECTORS * LANES : LANES;
}

INLINE void block_split(const void *from, size_t rows, size_t in, size_t width, float *to,
			bool half)
{
	for (size_t b = 0; b < in; b += width)
		for (size_t r = 0; r < rows; r++)
			for (size_t c = 0; c < width; c += LANES, to += LANES)
				store(to, 0, load(from, r * in + b + c, half), false);
}

INLINE void block_join(const float *from, size_t rows, size_t in, size_t width, void *to, bool half)
{
	for (size_t b = 0; b < in; b += width)
		for (size_t r = 0; r < rows; r++)
			for (size_t c = 0; c < width; c += LANES, from += LANES)
				store(to, r * in + b + c, load(from, 0, false), half);
}

/* Sets [rows] to the addresses of a window's three rows, which are [row] elements apart. */
INLINE void window_rows(const float *first, size_t row, const float *rows[3])
{
	rows[0] = first;
	rows[1] = first + row;
	rows[2] = first + 2 * row;
	KEEP(rows[0]);
	KEEP(rows[1]);
	KEEP(rows[2]);
}

/* Memory to prefetch piece by piece during the computation. */
struct prefetch {
	const char *next, *end;
};

INLINE void prefetch_lines(struct prefetch *prefetch)
{
	for (int i = 0; i < LINES && prefetch->next < prefetch->end; i++, prefetch->next += LINE)
		__builtin_prefetch(prefetch->next, 0, 2);
}

/* The memory of image [i], which has [bytes] bytes; empty if there are not that many images. */
INLINE struct prefetch prefetch_image(const void *images, size_t i, size_t count, size_t bytes)
{
	const char *next = (const char *)images + i * bytes;

	return (struct prefetch){next, i < count ? next + bytes : next};
}

/* --- Gradient of the weights ---------------------------------------------------------------- */

/*
 * Returns, for each of LANES channels of pooled pixel [p], the first input pixel of the window that
 * the channel's gradient affects.
 */
INLINE v_i32 window_pixels(const struct kernel_list *list, size_t p, size_t c, int32_t first,
			   int32_t width)
{
	const uint64_t *word = list->bits + (p * list->words + c / KERNEL_WORD) * 4;
	v_i32 right = spread((uint32_t)((word[1] | word[3]) >> c % KERNEL_WORD));
	v_i32 down = spread((uint32_t)((word[2] | word[3]) >> c % KERNEL_WORD));

	return first + (right & 1) + (down & width);
}

/*
 * Appends the nonzero gradients of LANES channels to the arrays of these channels. Reads [n] pooled
 * pixels of image [i], starting with pixel [at].
 */
INLINE void band_append(struct kernel_list *list, size_t width, size_t i, size_t at, size_t n,
			size_t c)
{
	size_t pixel = i * list->rows * list->columns + at;
	v_i32 value[LANES] = {{0}}, place[LANES] = {{0}};

	for (size_t k = 0; k < n; k++) {
		value[k] = (v_i32)load(list->values, (pixel + k) * list->pitch + c, false);
		place[k] = window_pixels(list, pixel + k, c, list->pixels[at + k], (int32_t)width);
	}
	transpose(value);
	transpose(place);
	UNROLL
	for (size_t k = 0; k < LANES; k++) {
		size_t to = (c + k) * list->channel_size + list->filled[c + k];
		uint32_t bits = bits_of((v_f32)value[k] != 0);

		compress(list->channel + to, value[k], bits);
		compress(list->place + to, place[k], bits);
		list->filled[c + k] += (uint32_t)__builtin_popcount(bits);
	}
}

/* Sorts the gradients of [rows] pooled rows of image [i] by channel, starting with row [h]. */
INLINE void band_fill(struct kernel_list *list, size_t width, size_t i, size_t h, size_t rows)
{
	size_t begin = h * list->columns, end = begin + rows * list->columns;

	memset(list->filled, 0, list->pitch * sizeof(*list->filled));
	for (size_t at = begin; at < end; at += LANES)
		for (size_t c = 0; c < list->pitch; c += LANES)
			band_append(list, width, i, at, count_in_vector(at, end), c);
}

/*
 * Multiplies [count] gradients of one output channel by the input, and adds the products to the
 * gradient of that channel's weights.
 */
INLINE void channel_weights(const float *x, size_t width, const float *values,
			    const uint32_t *places, size_t count, float *weights, size_t vectors)
{
	v_f32 sums[TAPS * VECTORS];

	UNROLL
	for (size_t t = 0; t < TAPS * vectors; t++)
		sums[t] = load(weights, t * LANES, false);
	for (size_t e = 0; e < count; e++) {
		v_f32 value = all(values[e]);
		const float *rows[3];

		window_rows(x + places[e] * vectors * LANES, width * vectors * LANES, rows);
		UNROLL
		for (size_t t = 0; t < TAPS * vectors; t++)
			sums[t] = multiply_add(value,
					       load(rows[t / (3 * vectors)],
						    t % (3 * vectors) * LANES, false),
					       sums[t]);
	}
	UNROLL
	for (size_t t = 0; t < TAPS * vectors; t++)
		store(weights, t * LANES, sums[t], false);
}

INLINE void band_weights(const struct kernel_list *list, const struct kernel_window *window,
			 const float *x, float *weights, size_t vectors, struct prefetch *prefetch)
{
	size_t width = (size_t)window->width, block = vectors * LANES;

	for (size_t b = 0; b < (size_t)window->in; b += block) {
		for (size_t c = 0; c < (size_t)window->out; c++, weights += TAPS * block) {
			prefetch_lines(prefetch);
			channel_weights(x, width, list->channel + c * list->channel_size,
					list->place + c * list->channel_size, list->filled[c],
					weights, vectors);
		}
		x += (size_t)window->height * width * block;
	}
}

INLINE void image_weights(struct kernel_list *list, const struct kernel_window *window, size_t i,
			  const float *x, struct prefetch *prefetch)
{
	for (size_t h = 0; h < list->rows; h += list->band) {
		size_t rows = list->rows - h < list->band ? list->rows - h : list->band;

		band_fill(list, (size_t)window->width, i, h, rows);
		if (block_width((size_t)window->in) == VECTORS * LANES)
			band_weights(list, window, x, list->weights, VECTORS, prefetch);
		else
			band_weights(list, window, x, list->weights, 1, prefetch);
	}
}

static TARGET void list_weights(const struct kernel_window *window, struct kernel_list *list,
				size_t images, const void *x, float *weights, enum ddp_type type)
{
	size_t in = (size_t)window->in, block = block_width(in), taps = (size_t)window->out * TAPS;
	size_t pixels = (size_t)window->width * (size_t)window->height;
	size_t bytes = pixels * in * ddp_type_size(type);

	memset(list->weights, 0, taps * in * sizeof(*weights));
	for (size_t i = 0; i < images; i++) {
		struct prefetch prefetch = prefetch_image(x, i + 1, images, bytes);
		const void *from = (const char *)x + i * bytes;

		if (type == DDP_BF16)
			block_split(from, pixels, in, block, list->image, true);
		else if (in > block)
			block_split(from, pixels, in, block, list->image, false);
		image_weights(list, window, i, type == DDP_BF16 || in > block ? list->image : from,
			      &prefetch);
	}
	block_join(list->weights, taps, in, block, weights, false);
}

/* --- Gradient of the input ------------------------------------------------------------------ */

/*
 * Adds [value] times [weights] to the window that starts at [sums], in an array of 4 x 4 vectors.
 */
INLINE void window_add(v_f32 *sums, v_f32 value, const float *weights)
{
	KEEP(weights);
	UNROLL
	for (size_t t = 0; t < TAPS; t++) {
		v_f32 *sum = &sums[t / 3 * 4 + t % 3];

		*sum = multiply_add(value, load(weights, t * LANES, false), *sum);
	}
}

/*
 * Adds the gradients of all output channels at one pooled pixel to LANES input channels of dx. Two
 * adjacent pixels of dx are [pitch] elements apart.
 */
INLINE void pixel_data(const uint64_t *bits, size_t words, const float *values,
		       const float *weights, float *dx, size_t row, size_t pitch)
{
	float *rows[4] = {dx, dx + row, dx + 2 * row, dx + 3 * row};
	v_f32 sums[16];

	UNROLL
	for (size_t t = 0; t < 16; t++)
		sums[t] = load(rows[t / 4], t % 4 * pitch, false);
	UNROLL
	for (size_t k = 0; k < 4; k++)
		for (size_t w = 0; w < words; w++)
			for (uint64_t left = bits[4 * w + k]; left; left &= left - 1) {
				size_t c = w * KERNEL_WORD + (unsigned)__builtin_ctzll(left);

				window_add(sums + k / 2 * 4 + k % 2, all(values[c]),
					   weights + c * TAPS * LANES);
			}
	UNROLL
	for (size_t t = 0; t < 16; t++)
		store(rows[t / 4], t % 4 * pitch, sums[t], false);
}

INLINE void image_data(const struct kernel_list *list, size_t width, size_t i, const float *weights,
		       float *dx, size_t pitch, struct prefetch *prefetch)
{
	size_t p = i * list->rows * list->columns;

	for (size_t h = 0; h < list->rows; h++)
		for (size_t w = 0; w < list->columns; w++, p++) {
			prefetch_lines(prefetch);
			pixel_data(list->bits + p * list->words * 4, list->words,
				   list->values + p * list->pitch, weights,
				   dx + (2 * h * width + 2 * w) * pitch, width * pitch, pitch);
		}
}

/* Converts and masks the [count] sums of an image while they are in the cache. */
INLINE void image_done(const float *sums, const void *y, void *dx, size_t count, bool half)
{
	for (size_t i = 0; i < count; i += LANES) {
		v_f32 value = load(sums, i, false);

		store(dx, i, y ? only(load(y, i, half) > 0, value) : value, half);
	}
}

static TARGET void list_data(const struct kernel_window *window, struct kernel_list *list,
			     size_t images, const float *weights, const void *y, void *dx,
			     enum ddp_type type)
{
	size_t in = (size_t)window->in, taps = (size_t)window->out * TAPS;
	size_t width = (size_t)window->width, image = width * (size_t)window->height * in;
	size_t bytes = image * ddp_type_size(type);

	block_split(weights, taps, in, LANES, list->weights, false);
	for (size_t i = 0; i < images; i++) {
		const void *from = y ? (const char *)y + i * bytes : NULL;
		struct prefetch prefetch = prefetch_image(dx, i + 1, images, bytes);
		void *to = (char *)dx + i * bytes;
		float *sums = type == DDP_BF16 ? list->image : to;

		memset(sums, 0, image * sizeof(*sums));
		for (size_t b = 0; b < in; b += LANES)
			image_data(list, width, i, list->weights + b * taps, sums + b, in,
				   &prefetch);
		if (type == DDP_BF16)
			image_done(sums, from, to, image, true);
		else if (y)
			image_done(sums, from, to, image, false);
	}
}
