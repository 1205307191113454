/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interleave.h - every order in which ranks that share a GPU can take their turns
 *
 * A model of runtime/device/shard-protocol.c: streams that execute the very moves of ddp_shard_moves(), the memory they share, hosts
 * that die or give up and hosts that notice it and release the words. All states that any order of
 * their steps leads to are visited, once each; what must hold is looked at in each step.
 */
#ifndef DDP_TESTS_INTERLEAVE_H
#define DDP_TESTS_INTERLEAVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { INTERLEAVE_MEMBERS = 5, INTERLEAVE_TURNS = 4 };

/* What can be wrong with the protocol, or with those who follow it. */
enum interleave_plant {
	SOUND,
	DONE_TOO_EARLY,	     /* the leader says that it is done before the last of its work */
	FOLLOWER_WAITS_NOT,  /* for the leader */
	FOLLOWER_WAITS_LESS, /* for the turn before */
	LEADER_SKIPS_ONE,    /* of those it must wait for */
	LENT_TOO_EARLY,	     /* before the gradients are there */
	SPREAD_TOO_EARLY,    /* before the other GPUs have added theirs */
	NOT_INTO_ALL,	     /* the sum stays with the leader */
	WORDS_AT_ZERO,	     /* the page was not begun */
	NO_WRAP,	     /* word >= value, as it is for numbers that never wrap */
	EXACTLY,	     /* word == value */
	FREE_TOO_FAR,	     /* half the numbers ahead, which is behind */
	NOBODY_RELEASES,     /* when somebody is gone */
	RELEASES_ONCE,	     /* each word, and not until the own stream is at rest */
	FLAG_LAST,	     /* `released` is set after the words */
	TELL_LAST,	     /* the node is told after the words, so leaders of other GPUs are */
	ABORTS_FIRST,	     /* what goes between GPUs, and sets the flag then */
	LOOKS_NOT,	     /* at `released` */
	LOOKS_FIRST,	     /* and reads the result then */
};

struct interleave_world {
	int members;
	bool wide;	/* other GPUs take part */
	int turns;	/* of one memory, one after the other */
	uint32_t first; /* the number of the first */
	int faults;	/* members that die or give up, at most, at any point each */
	bool full;	/* without the reductions of interleave.c */
	enum interleave_plant plant;
};

/*
 * Visit all states. Returns how many there are; where something does not hold, the steps to it, as few as
 * there can be, are in [story], which is "" else.
 */
size_t interleave(const struct interleave_world *world, char *story, size_t size);

#endif /* DDP_TESTS_INTERLEAVE_H */
