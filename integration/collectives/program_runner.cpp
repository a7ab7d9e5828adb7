// Owns running the steps of a program.
//
// A step receives, reduces, copies and sends the same elements, or does some of these. It is made
// when its message has come and there is room to send; until then advance() returns and the caller
// goes on with other programs.
#include "integration/collectives/program_runner.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

namespace weft::collectives {

ProgramRunner::ProgramRunner(const RunnerSetup& setup, const RankProgram& program, Ends ends)
    : setup_(setup), program_(program), ends_(std::move(ends)), taken_(ends_.from.size()) {
  if (program.protocol != Protocol::simple) {
    std::size_t bytes = 0;
    for (const ProgramStep& step : program.steps) {
      bytes = std::max(bytes, step.count * size_of(setup.type));
    }
    data_.assign(ends_.from.size(), std::vector<std::byte>(bytes));
    out_.resize(bytes);
  }
}

bool ProgramRunner::finished() const {
  return step_ == program_.steps.size() &&
         std::all_of(ends_.from.begin(), ends_.from.end(),
                     [](const ReceiveChannel* one) { return one->idle(); });
}

bool ProgramRunner::advance(std::span<std::byte> input, std::span<std::byte> output) {
  bool moved = false;
  while (step_ != program_.steps.size() && step_once(input, output)) {
    moved = true;
    if (++slice_ == program_.slices) {
      slice_ = 0;
      ++step_;
    }
  }
  return moved;
}

void ProgramRunner::check_size(std::size_t end, std::size_t bytes) const {
  const std::size_t arrived = ends_.from[end]->arrived_bytes();
  if (arrived != bytes) {
    throw std::runtime_error("a message of " + std::to_string(arrived) +
                             " bytes has come where one of " + std::to_string(bytes) + " was due");
  }
}

// Whether everything has come that the step receives. With lines it takes the data out as far as
// they have come: `taken_` remembers that, so that no line is looked at twice.
bool ProgramRunner::has_come(const ProgramStep& step, std::size_t bytes) {
  bool all = true;
  for (std::size_t i = 0; i < ends_.from.size(); ++i) {
    ReceiveChannel& end = *ends_.from[i];
    if (!step.receives_from(i)) {
      continue;
    }
    if (program_.protocol != Protocol::simple) {
      taken_[i] =
          read_lines(program_.protocol, end.place(), end.flag(), data_[i].data(), bytes, taken_[i]);
      all = all && taken_[i] == lines_of(program_.protocol, bytes);
    } else if (end.slot() == nullptr) {
      all = false;
    } else {
      check_size(i, bytes);
    }
  }
  return all;
}

bool ProgramRunner::has_room(const ProgramStep& step) const {
  for (std::size_t i = 0; i < ends_.to.size(); ++i) {
    if (step.sends_to(i) && ends_.to[i]->slot() == nullptr) {
      return false;
    }
  }
  return true;
}

void ProgramRunner::hand_over(const ProgramStep& step, std::size_t bytes, const std::byte* out) {
  const bool simple = program_.protocol == Protocol::simple;
  const std::size_t wire = simple ? bytes : line_bytes(program_.protocol, bytes);
  for (std::size_t i = 0; i < ends_.from.size(); ++i) {
    if (step.receives_from(i)) {
      ends_.from[i]->pop(setup_.audit ? wire : 0);
      taken_[i] = 0;
    }
  }
  for (std::size_t i = 0; i < ends_.to.size(); ++i) {
    if (!step.sends_to(i)) {
      continue;
    }
    SendChannel& end = *ends_.to[i];
    if (!simple) {
      write_lines(program_.protocol, out, bytes, end.slot(), end.flag());
    } else if (end.slot() != out && bytes != 0) {
      std::memcpy(end.slot(), out, bytes);
    }
    end.push(wire);
  }
}

// Does one slice of one step, if its messages have come and there is room to send: copies or
// reduces it to where it belongs, and hands it on.
bool ProgramRunner::step_once(std::span<std::byte> input, std::span<std::byte> output) {
  const std::size_t element = size_of(setup_.type);
  const bool simple = program_.protocol == Protocol::simple;
  const ProgramStep& step = program_.steps[step_];
  const Slice slice =
      simple ? slice_of(step.count, program_.slices, slice_, setup_.slot_bytes / element)
             : Slice{0, step.count};
  const std::size_t bytes = slice.count * element;
  if ((step.receives && !has_come(step, bytes)) || (step.sends && !has_room(step))) {
    return false;
  }
  const auto at = [&](std::span<std::byte> user, std::size_t offset) {
    return offset == ProgramStep::kNone ? nullptr : user.data() + (offset + slice.offset) * element;
  };
  // What goes out is made in the first slot, or where lines are made of it; the result is a copy.
  std::byte* const result = at(output, step.to);
  std::byte* out = result;
  if (step.sends) {
    const auto first = static_cast<std::size_t>(std::countr_zero(step.to_ends));
    out = simple ? ends_.to[first]->slot() : out_.data();
  }
  const std::byte* const own = at(step.from_output ? output : input, step.from);
  const auto come = [&](std::size_t i) { return simple ? ends_.from[i]->slot() : data_[i].data(); };
  if (bytes != 0 && out != nullptr) {
    const auto first = static_cast<std::size_t>(std::countr_zero(step.from_ends));
    const std::byte* const source = own != nullptr ? own : come(first);
    if (out != source) {
      std::memcpy(out, source, bytes);
    }
    for (std::size_t i = own != nullptr ? first : first + 1; i < ends_.from.size(); ++i) {
      if (step.receives_from(i)) {
        reduce(setup_.type, setup_.reduction, out, come(i), slice.count);
      }
    }
    if (step.finishes) {
      finish(setup_.type, setup_.reduction, setup_.ranks, out, slice.count);
    }
    if (result != nullptr && result != out) {
      std::memcpy(result, out, bytes);
    }
  }
  hand_over(step, bytes, out);
  return true;
}

}  // namespace weft::collectives
