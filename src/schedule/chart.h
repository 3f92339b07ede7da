// Draws the timeline of a program as text, or as a picture.
#pragma once

#include <string>

#include "schedule/simulate.h"

namespace megatron::schedule {

/// One line per rank, time from left to right, each pass drawn as its text over its duration ("F0", "B3"; with several
/// stages on a rank "2F0", the stage in front), idle time as dots. Longer lines are cut at `max_columns` and end with
/// "…"; ranks beyond `max_rows` are counted in a last line.
std::string draw_chart(const Program& program, const Timeline& timeline, int max_columns = 160, int max_rows = 64);

/// The same as an SVG picture, all of it: F, I, W and B in colours of their own, later stages of a rank darker, with
/// the instruction as tooltip and, where it fits, as text.
std::string draw_svg(const Program& program, const Timeline& timeline);

}  // namespace megatron::schedule
