// Owns merging impairments: probabilities combine as independent chances, delays add up, rate
// factors multiply.
#include "emu/fabric/fault.hpp"

#include <algorithm>

namespace weft::fabric {
namespace {

// The chance that at least one of two independent events happens.
double either(double a, double b) { return 1 - (1 - a) * (1 - b); }

}  // namespace

void Impairment::merge(const Impairment& other) {
  // The smaller spared size wins only where both lose frames at all.
  const bool loses = loss > 0 || burst.enter > 0 || grey > 0;
  const bool other_loses = other.loss > 0 || other.burst.enter > 0 || other.grey > 0;
  if (other_loses) {
    min_bytes = loses ? std::min(min_bytes, other.min_bytes) : other.min_bytes;
  }
  down = down || other.down;
  rate_factor *= other.rate_factor;
  extra_delay += other.extra_delay;
  jitter += other.jitter;
  loss = either(loss, other.loss);
  // Two burst processes become one that is at least as bad as each: it begins as often as both, and
  // lasts as long as the longer one.
  if (other.burst.enter > 0) {
    if (burst.enter > 0) {
      burst.enter = either(burst.enter, other.burst.enter);
      burst.leave = std::min(burst.leave, other.burst.leave);
      burst.loss = std::max(burst.loss, other.burst.loss);
    } else {
      burst = other.burst;
    }
  }
  corruption = either(corruption, other.corruption);
  duplication = either(duplication, other.duplication);
  reordering = either(reordering, other.reordering);
  reorder_delay = std::max(reorder_delay, other.reorder_delay);
  grey = either(grey, other.grey);
}

}  // namespace weft::fabric
