/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dumps of PyTorch's flight recorder, which a job's own processes wrote: of any bytes, beside one that is well.
 */
#include "config.h"

#include "fuzz.h"
#include "run/flight.h"

enum { RANKS = 3 };

#define TEXT(size, text) "\x8c" size text

static const char well[] = "\x80\4}(" TEXT("\7", "entries") "](}(" TEXT("\x0d", "process_group")
	TEXT("\1", "0") TEXT("\12", "default_pg") "\x86" TEXT(
		"\x11", "collective_seq_id") "K\5" TEXT("\x0e", "profiling_name")
		TEXT("\x0f", "gloo:all_reduce") TEXT("\5", "state") TEXT("\x9", "scheduled") "ueu.";

static void check_arrivals(const struct flight *flight)
{
	struct ddp_arrival arrivals[RANKS] = {{.there = false}};
	char text[512];

	HOLDS(flight_arrivals(flight, arrivals, RANKS));
	ddp_arrival_describe(arrivals, RANKS, text, sizeof(text));
	HOLDS(strlen(text) < sizeof(text));
	for (int i = 0; i < RANKS; i++) {
		HOLDS(strlen(arrivals[i].last) < sizeof(arrivals[i].last));
		HOLDS(!arrivals[i].missing || !arrivals[i].outside);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct flight flight = {.groups = NULL};

	HOLDS(flight_read(&flight, 0, well, sizeof(well) - 1) == 0);
	HOLDS(flight.group_count == 1 && flight.row_count == 2);
	if (flight_read(&flight, 1, (const char *)data, size) < 0)
		HOLDS(flight.group_count == 1 && flight.row_count == 2);
	check_arrivals(&flight);
	flight_free(&flight);
	return 0;
}
