/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/text.h"
#include "mps.h"
#include "report.h"
#include "sharing.h"

static void put_string(const char *string, FILE *out)
{
	struct ddp_text text = {.data = NULL};

	ddp_text_json(&text, string);
	fputs(text.failed ? "null" : text.data, out);
	ddp_text_free(&text);
}

static void put_field(const char *name, const char *text, FILE *out)
{
	fprintf(out, ", \"%s\": ", name);
	if (*text)
		put_string(text, out);
	else
		fputs("null", out);
}

/* A number that is not known where it is 0. */
static void put_number(const char *name, double value, FILE *out)
{
	fprintf(out, ", \"%s\": ", name);
	fprintf(out, value > 0 ? "%.15g" : "null", value);
}

static void put_card(const struct info_card *card, FILE *out)
{
	fprintf(out, "{\"rank\": %d, \"node_rank\": %d, \"local_rank\": %d, \"local_size\": %d, ",
		card->rank, card->node_rank, card->local_rank, card->local_size);
	fprintf(out, "\"pid\": %d, \"device\": ", card->pid);
	fprintf(out, card->device >= 0 ? "%d" : "null", card->device);
	fprintf(out, ", \"share\": ");
	fprintf(out, card->share > 0 ? "%.6g" : "null", card->share);
	fprintf(out, ", \"endpoint_reached\": %s",
		card->reached < 0 ? "null"
		: card->reached	  ? "true"
				  : "false");
	put_field("node", card->host, out);
	put_field("cpus", card->cpu_list, out);
	put_field("device_name", card->device_name, out);
	put_field("uuid", card->uuid, out);
	put_field("libraries", card->libraries, out);
	put_field("gpu_of_node", card->slot, out);
	put_field("trouble", card->trouble, out);
	put_number("memory_total", (double)card->total, out);
	put_number("memory_free", (double)card->free, out);
	put_number("memory_context", (double)card->context, out);
	put_number("memory_share", card->share * (double)card->total, out);
	fputc('}', out);
}

static void put_members(const struct info_report *report, int first, FILE *out)
{
	const char *comma = "";

	fprintf(out, ", \"ranks\": [");
	for (int rank = first; rank < report->world->size; rank++) {
		if (report->cards[rank].first != first)
			continue;
		fprintf(out, "%s%d", comma, rank);
		comma = ", ";
	}
	fputc(']', out);
}

static void put_sharing(const struct info_report *report, const struct info_sharing *sharing,
			FILE *out)
{
	const struct info_card *card = &report->cards[sharing->first];
	const char *daemon = card->mps == DDP_MPS_SERVES  ? "serves"
			     : card->mps == DDP_MPS_STALE ? "gone"
							  : "";

	fprintf(out, "{\"mode\": \"%s\"", sharing->mps ? "MPS" : "time-slicing");
	put_members(report, sharing->first, out);
	put_field("node", card->host, out);
	put_field("uuid", card->uuid, out);
	put_field("gpu_of_node", card->slot, out);
	put_number("share_sum", sharing->sum, out);
	put_field("mps_daemon", daemon, out);
	put_field("mps_directory", *daemon ? card->mps_directory : "", out);
	put_number("mps_threads", sharing->threads ? sharing->quickest : 0, out);
	put_field("mps_memory", sharing->memory ? card->memory_limit : "", out);
	fprintf(out, ", \"enforced\": [%s%s%s]}", sharing->threads ? "\"threads\"" : "",
		sharing->threads && sharing->memory ? ", " : "",
		sharing->memory ? "\"memory\"" : "");
}

static void put_sharings(const struct info_report *report, FILE *out)
{
	struct info_sharing sharing;
	const char *comma = "";

	fprintf(out, "],\n \"sharing\": [");
	for (int rank = 0; rank < report->world->size; rank++) {
		if (!info_sharing_at(report->cards, report->world->size, rank, &sharing))
			continue;
		fprintf(out, "%s\n  ", comma);
		put_sharing(report, &sharing, out);
		comma = ",";
	}
}

static void put_timing(const struct info_timing *timing, FILE *out)
{
	fprintf(out,
		"{\"bytes\": %zu, \"median_seconds\": %.9g, \"best_seconds\": %.9g, "
		"\"wrong_elements\": %llu}",
		timing->bytes, timing->median, timing->best, (unsigned long long)timing->wrong);
}

void info_report_json(const struct info_report *report, FILE *out)
{
	const struct ddp_world *world = report->world;

	fprintf(out, "{\"version\": \"%s\", \"size\": %d, \"nodes\": %d", PACKAGE_VERSION,
		world->size, world->node_count);
	put_field("job", world->job, out);
	put_field("source", world->source, out);
	put_field("method", world->method, out);
	put_field("wide", world->wide, out);
	put_field("endpoint", report->cards[0].endpoint, out);
	fprintf(out, ",\n \"ranks\": [");
	for (int rank = 0; rank < world->size; rank++) {
		fprintf(out, "%s\n  ", rank ? "," : "");
		put_card(&report->cards[rank], out);
	}
	put_sharings(report, out);
	fprintf(out, "],\n \"warnings\": [");
	for (int i = 0; i < report->warnings->count; i++) {
		fprintf(out, "%s\n  ", i ? "," : "");
		put_string(report->warnings->text[i], out);
	}
	fprintf(out, "],\n \"selftest_device\": %s",
		report->test && report->test->device ? "true" : "false");
	fprintf(out, ",\n \"selftest\": ");
	if (!report->test)
		fputs("null", out);
	else
		fputc('[', out);
	for (int i = 0; report->test && i < report->test->count; i++) {
		fprintf(out, "%s\n  ", i ? "," : "");
		put_timing(&report->test->timings[i], out);
	}
	fprintf(out, "%s}\n", report->test ? "]" : "");
}
