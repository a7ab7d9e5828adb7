// Owns a member of a group that is no plugin: it has joined by the rules, knows all names and keys,
// and from then on says whatever it likes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "integration/nccl/core/rma.hpp"
#include "srd/base/rng.hpp"
#include "tests/unit/integration/nccl/core_lab.hpp"

namespace weft::testing {
namespace {

using nccl::RmaKind;
using nccl::RmaMessage;

constexpr srd::Qpn kControl{8};

class Liar : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  Liar() : world_(GetParam()), rng_(GetParam()) {
    for (std::uint32_t i = 0; i < 2; ++i) {
      srd::EngineConfig config = nccl_lab_config().engine;
      config.seed = GetParam() * 10 + i;
      world_.add_host(config);
    }
    nccl::RmaConfig config;
    config.nic = {.address = world::address_of_host(0),
                  .attachment = {},
                  .first_qpn = kControl,
                  .seed = GetParam()};
    auto made = nccl::Rma::create(world_.engine(0), config);
    EXPECT_TRUE(made.has_value());
    rma_ = std::move(*made);
    for (std::uint32_t i = 0; i < nccl::kEndpoints; ++i) {  // only the first one hears anything
      EXPECT_TRUE(liar()
                      .open_endpoint(srd::Qpn{kControl.value() + i},
                                     {.qkey = kQkey, .receive_depth = i == 0 ? 64U : 0U})
                      .has_value());
    }
    for (std::uint64_t i = 0; i < heard_.size(); ++i) {
      post_receive(i);
    }
  }
  srd::Engine& liar() { return world_.engine(1); }

  void post_receive(std::uint64_t index) {
    srd::ReceiveRequest request;
    request.segments[0] = {heard_[index].data(), 64};
    request.cookie = index;
    (void)liar().post_receive(kControl, request);
  }
  void run_for(Duration duration) {
    const TimePoint end = world_.now() + duration;
    world_.pump();
    while (world_.step(end)) {
      settle();
    }
    settle();
  }
  // Gives both sides what has completed. The liar only notes what it is told.
  void settle() {
    while (const srd::Completion* const next = world_.engine(0).next_completion()) {
      const srd::Completion completion = *next;
      world_.engine(0).pop_completion();
      rma_->take(completion);
    }
    rma_->progress(world_.now());
    while (const srd::Completion* const next = liar().next_completion()) {
      const srd::Completion completion = *next;
      liar().pop_completion();
      if (completion.kind == srd::Completion::Kind::receive) {
        RmaMessage message;
        std::memcpy(&message, heard_[completion.cookie].data(), sizeof message);
        if (message.kind == static_cast<std::uint8_t>(RmaKind::join)) {
          join_ = message;
          victim_ = completion.peer;
        } else if (message.kind == static_cast<std::uint8_t>(RmaKind::window)) {
          windows_.push_back(message);
        }
        post_receive(completion.cookie);
      }
    }
    world_.pump();
  }
  // As its own member would say it, with `message`'s kind, flags, number and amounts.
  void say(RmaMessage message, std::size_t length = sizeof(RmaMessage)) {
    message.to_group = join_.from_group.value();
    message.to_nonce = join_.from_nonce.value();
    message.from_group = 1;
    message.from_nonce = 5;
    message.from_rank = 1;
    message.qkey = kQkey;
    said_.push_back(message);
    srd::SendRequest request;
    request.peer = victim_;
    request.source = request.destination = kControl;
    request.qkey = join_.qkey.value();
    request.segments[0] = {reinterpret_cast<std::byte*>(&said_.back()),
                           static_cast<std::uint32_t>(length)};
    (void)liar().post(request);
  }
  RmaMessage of_kind(RmaKind kind) {
    RmaMessage message;
    message.kind = static_cast<std::uint8_t>(kind);
    return message;
  }

  static constexpr std::uint32_t kQkey = 99;
  world::VirtualWorld world_;
  Rng rng_;
  std::unique_ptr<nccl::Rma> rma_;
  std::array<std::array<std::byte, 64>, 64> heard_{};
  std::deque<RmaMessage> said_;
  RmaMessage join_;
  std::vector<RmaMessage> windows_;
  srd::PeerId victim_;
};
INSTANTIATE_TEST_SUITE_P(Seeds, Liar, ::testing::Range<std::uint64_t>(1, 6));

TEST_P(Liar, ChangesOnlyWordsOfItsPartnersWindow) {
  nccl::ListenHandle own;
  nccl::ListenHandle other;
  const std::uint32_t listener = rma_->listen(own);
  other = own;
  other.address = world::address_of_host(1).bytes;
  other.control = kControl.value();
  other.qkey = kQkey;
  std::uint16_t group = 0;
  const nccl::ListenHandle handles[] = {own, other};
  ASSERT_EQ(rma_->join(handles, 0, listener, group), nccl::Outcome::ok);
  run_for(1ms);
  RmaMessage join = of_kind(RmaKind::join);
  join.number = listener;
  join.place = own.secret.value();
  join.amount = 2;
  say(join);
  run_for(1ms);
  ASSERT_EQ(rma_->joined(group), nccl::RmaStep::done);

  constexpr std::size_t kMargin = 256;
  constexpr std::size_t kRoom = 128;
  std::vector<std::byte> memory(kRoom + 2 * kMargin, std::byte{0x5A});
  std::uint32_t window = 0;
  std::uint32_t context = 0;
  ASSERT_EQ(rma_->register_window(group, memory.data() + kMargin, kRoom, window),
            nccl::Outcome::ok);
  ASSERT_EQ(rma_->create_context(group, 1, context), nccl::Outcome::ok);
  std::vector<nccl::Request*> requests;
  for (int i = 0; i < 2000; ++i) {
    RmaMessage message = of_kind(static_cast<RmaKind>(1 + rng_.below(i < 1900 ? 3 : 5)));
    message.flags = static_cast<std::uint8_t>(rng_.below(20) == 0);
    message.number = static_cast<std::uint32_t>(rng_.below(4));
    message.key = static_cast<std::uint32_t>(rng_.next());
    message.place = rng_.below(3) == 0 ? rng_.next() : rng_.below(kRoom + 64);
    message.amount = rng_.below(2) == 0 ? rng_.next() : rng_.below(300);
    say(message, rng_.below(30) == 0 ? rng_.below(52) : sizeof message);
    // The victim goes on as if all was well: puts and gets at what it was told.
    nccl::Request* request = nullptr;
    const bool gets = rng_.below(2) == 0;
    const std::size_t size = rng_.below(kRoom);
    (void)(gets ? rma_->get(group, context, 1, {window, 0}, size, {window, 0}, request)
                : rma_->put(group, context, 1, {window, 0}, size, {window, 0},
                            nccl::RmaSignal{{window, 0}, 1, true}, request));
    if (request != nullptr) {
      requests.push_back(request);
    }
    run_for(5us);
  }
  run_for(2s);
  for (std::size_t i = 0; i < kMargin; ++i) {
    ASSERT_EQ(memory[i], std::byte{0x5A});
    ASSERT_EQ(memory[kMargin + kRoom + i], std::byte{0x5A});
  }
  for (nccl::Request* const one : requests) {
    EXPECT_NE(one->state.load(), nccl::Request::State::pending) << "an end for everything";
    rma_->release(*one);
  }
  rma_->close(group);
  const std::vector<std::byte> after = memory;
  say(of_kind(RmaKind::signal));
  run_for(1s);
  EXPECT_TRUE(memory == after);
  EXPECT_TRUE(rma_->idle());
}

}  // namespace
}  // namespace weft::testing
