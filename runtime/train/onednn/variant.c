/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "layer.h"

/* Variants of one kind: oneDNN's implementations of it, in its order, [most] of them at most. */
struct family {
	const char *name;
	bool dense, winograd, columns;
	enum layout layout, weights;
	int most;
};

/*
 * Dense layers take the caller's layout: what is saved by a layout of oneDNN's own is less than
 * the reorder of the weights costs (measured, f32 and bf16, at 64 images).
 */
static const struct family families[] = {
	{"direct", false, false, false, LAYOUT_PLAIN, LAYOUT_ANY, VARIANT_SKIPS + 1},
	{"blocked", false, false, false, LAYOUT_ANY, LAYOUT_ANY, 1},
	{"winograd", false, true, false, LAYOUT_ANY, LAYOUT_ANY, 1},
	{"columns", false, false, true, LAYOUT_PLAIN, LAYOUT_ANY, 1},
	{"direct", true, false, false, LAYOUT_PLAIN, LAYOUT_PLAIN, 1},
	{"packed", true, false, false, LAYOUT_PLAIN, LAYOUT_ANY, 1},
};

#define FAMILIES (sizeof(families) / sizeof(families[0]))

void variant_ask(struct plan_options *options, const struct variant *variant,
		 const struct math_options *layer, enum math_pass pass, size_t count)
{
	/* Gradients of weights as the caller has them: the product is as fast, the reorder saved. */
	bool plain = variant->columns && pass == MATH_BACK_WEIGHTS;

	*options = (struct plan_options){.layer = *layer,
					 .pass = pass,
					 .count = count,
					 .winograd = variant->winograd,
					 .columns = variant->columns,
					 .skip = variant->skip,
					 .x = variant->layout,
					 .weights = plain ? LAYOUT_PLAIN : variant->weights,
					 .y = variant->layout};
}

/* Rows of windows that are no more than so many bytes are worth a trial. */
#define COLUMNS ((size_t)80 << 20)

static bool columns_suit(const struct plan_options *options)
{
	struct columns columns;

	columns_init(&columns, options);
	return (columns.size > 1 || columns.stride > 1) && columns_bytes(&columns) <= COLUMNS;
}

/* The next of [family], where [number] of it were found. */
static int variant_find(struct pass *found, const struct family *family, int number,
			const struct math_options *layer, enum math_pass pass,
			struct ddp_error *error)
{
	static const char *const ends[VARIANT_SKIPS + 1] = {"", "2"};
	struct variant *variant = &found->variants[found->variant_count];
	struct plan_options options;
	struct plan_offer offer;
	int rc;

	*variant = (struct variant){.winograd = family->winograd,
				    .columns = family->columns,
				    .layout = family->layout,
				    .weights = family->weights};
	snprintf(variant->name, VARIANT_NAME, "%s%s", family->name, ends[number]);
	for (int i = 0; i < number; i++)
		variant->skip[i] = (variant - number + i)->implementation;
	variant_ask(&options, variant, layer, pass, layer->batch);
	if (family->columns && !columns_suit(&options))
		return DDP_ERR_UNSUPPORTED;
	if (family->columns)
		columns_ask(&options);
	rc = plan_probe(&options, &offer, error);
	if (rc)
		return rc;
	memcpy(variant->implementation, offer.name, PLAN_NAME);
	variant->turns = !offer.plain || family->columns;
	return 0;
}

/* Whether the last variant does the same as one before it: not worth a choice. */
static bool known(const struct pass *found)
{
	const struct variant *last = &found->variants[found->variant_count];

	for (const struct variant *variant = found->variants; variant < last; variant++)
		if (strcmp(variant->implementation, last->implementation) == 0 &&
		    variant->turns == last->turns)
			return true;
	return false;
}

static int family_find(struct pass *found, const struct family *family,
		       const struct math_options *layer, enum math_pass pass,
		       struct ddp_error *error)
{
	for (int number = 0; number < family->most; number++) {
		int rc = variant_find(found, family, number, layer, pass, error);

		if (rc)
			return rc == DDP_ERR_UNSUPPORTED && number ? 0 : rc;
		if (known(found))
			break;
		found->variant_count++;
	}
	return 0;
}

int variants_find(struct pass *found, const struct math_options *layer, enum math_pass pass,
		  struct ddp_error *error)
{
	struct ddp_error refused;

	for (size_t i = 0; i < FAMILIES; i++) {
		bool first = found->variant_count == 0;
		int rc;

		if (families[i].dense != layer->dense)
			continue;
		/* A dense layer needs one way alone. */
		if (layer->dense && !first)
			break;
		rc = family_find(found, &families[i], layer, pass, first ? error : &refused);
		if (rc && rc != DDP_ERR_UNSUPPORTED)
			return rc;
	}
	if (found->variant_count == 0 || found->variants[0].winograd)
		return DDP_ERR_UNSUPPORTED;
	return 0;
}
