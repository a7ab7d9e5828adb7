// Owns the messages between the two ends of a tunnel.
#include "srd/io/tunnel_session.hpp"

#include <cstring>

namespace weft::srd {
namespace {

// Offsets in the header.
constexpr std::size_t kMagicAt = 0;
constexpr std::size_t kFirstAt = 8;    // frame: challenge; greetings: question
constexpr std::size_t kSecondAt = 16;  // frame: number; answer: challenge
constexpr std::size_t kTagAt = 24;
static_assert(kTagAt + sizeof(SipHash::Tag) == TunnelSession::kHeaderSize);

// "weft", the version, what it is.
constexpr std::uint64_t kFrame = 0x7765'6674'0001'0001;
constexpr std::uint64_t kAsk = 0x7765'6674'0001'0002;
constexpr std::uint64_t kAnswer = 0x7765'6674'0001'0003;
constexpr std::uint64_t kMissing = 0x7765'6674'0001'0004;

std::uint64_t load(std::span<const std::byte> bytes, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    value = value << 8 | std::to_integer<std::uint64_t>(bytes[at + i]);
  }
  return value;
}

void store(std::span<std::byte> bytes, std::size_t at, std::uint64_t value) {
  for (std::size_t i = 8; i-- > 0; value >>= 8) {
    bytes[at + i] = static_cast<std::byte>(value);
  }
}

SipHash::Key half(const JoinKey& key, std::size_t which) {
  SipHash::Key out;
  std::memcpy(out.data(), key.bytes.data() + which * out.size(), out.size());
  return out;
}

SipHash::Tag tag_of(const SipHash::Key& key, std::span<const std::byte> head,
                    std::span<const std::span<const std::byte>> pieces = {}) {
  SipHash hash(key);
  hash.add(head);
  for (const auto& piece : pieces) {
    hash.add(piece);
  }
  return hash.finish();
}

}  // namespace

TunnelSession::TunnelSession(const JoinKey& key, std::uint64_t seed)
    : frame_key_(half(key, 0)),
      greeting_key_(half(key, 1)),
      seed_(seed),
      question_(fresh()),
      next_(fresh()) {}

// Never 0, and never the same twice.
std::uint64_t TunnelSession::fresh() {
  std::array<std::byte, 16> input;
  std::uint64_t value = 0;
  while (value == 0) {
    store(input, 0, seed_);
    store(input, 8, ++made_);
    value = load(tag_of(greeting_key_, input), 0);
  }
  return value;
}

TunnelSession::Header TunnelSession::seal(std::span<const std::span<const std::byte>> pieces) {
  Header header;
  store(header, kMagicAt, kFrame);
  store(header, kFirstAt, to_);
  store(header, kSecondAt, ++sent_);
  const SipHash::Tag tag = tag_of(frame_key_, std::span(header).first(kTagAt), pieces);
  std::memcpy(header.data() + kTagAt, tag.data(), tag.size());
  return header;
}

TunnelSession::Verdict TunnelSession::open(std::span<const std::byte> datagram,
                                           std::span<const std::byte>& frame) {
  if (datagram.size() < kHeaderSize) {
    return Verdict::refused;
  }
  if (load(datagram, kMagicAt) != kFrame) {
    return datagram.size() == kHeaderSize ? hear(datagram) : Verdict::refused;
  }
  const std::uint64_t challenge = load(datagram, kFirstAt);
  const bool known = challenge != 0 && (challenge == current_.challenge || challenge == next_ ||
                                        challenge == former_.challenge);
  if (!known) {
    missing_ = true;  // perhaps from before a restart of ours: the other end has to ask again
    return Verdict::refused;
  }
  const std::span<const std::byte> rest = datagram.subspan(kHeaderSize);
  const SipHash::Tag tag = tag_of(frame_key_, datagram.first(kTagAt), std::span(&rest, 1));
  if (!equal_tags(tag, datagram.subspan<kTagAt, sizeof(SipHash::Tag)>()) ||
      !count(challenge, load(datagram, kSecondAt))) {
    return Verdict::refused;
  }
  frame = rest;
  return Verdict::frame;
}

bool TunnelSession::count(std::uint64_t challenge, std::uint64_t number) {
  if (challenge == next_) {
    former_ = current_;
    current_ = {.challenge = next_, .latest = 0, .seen = {}};
    next_ = fresh();
  }
  return (challenge == current_.challenge ? current_ : former_).is_new(number);
}

bool TunnelSession::Stream::is_new(std::uint64_t number) {
  if (number > latest) {
    if (number - latest >= kWindow) {
      seen.reset();
    } else {
      for (std::uint64_t skipped = latest + 1; skipped < number; ++skipped) {
        seen.reset(skipped % kWindow);
      }
    }
    latest = number;
  } else if (number == 0 || latest - number >= kWindow || seen.test(number % kWindow)) {
    return false;
  }
  seen.set(number % kWindow);
  return true;
}

TunnelSession::Verdict TunnelSession::hear(std::span<const std::byte> greeting) {
  const SipHash::Tag tag = tag_of(greeting_key_, greeting.first(kTagAt));
  if (!equal_tags(tag, greeting.subspan<kTagAt, sizeof(SipHash::Tag)>())) {
    return Verdict::refused;
  }
  const std::uint64_t question = load(greeting, kFirstAt);
  const std::uint64_t challenge = load(greeting, kSecondAt);
  switch (load(greeting, kMagicAt)) {
    case kAsk:
      if (question == question_) {
        return Verdict::refused;  // our own message, sent back to us
      }
      if (answers_ < kMaxAnswers) {
        questions_[answers_++] = question;
      }
      return Verdict::greeting;
    case kAnswer:
      // If one of our own challenges came back as an answer, we would seal frames under it that
      // this end itself would accept.
      if (question != question_ || challenge == 0 || challenge == next_ ||
          challenge == current_.challenge || challenge == former_.challenge) {
        return Verdict::refused;
      }
      to_ = challenge;
      sent_ = 0;
      question_ = fresh();
      asking_ = false;
      return Verdict::greeting;
    case kMissing:
      asking_ = true;
      return Verdict::greeting;
    default:
      return Verdict::refused;
  }
}

bool TunnelSession::say(Header& greeting, std::uint64_t kind, std::uint64_t one,
                        std::uint64_t other) const {
  store(greeting, kMagicAt, kind);
  store(greeting, kFirstAt, one);
  store(greeting, kSecondAt, other);
  const SipHash::Tag tag = tag_of(greeting_key_, std::span(greeting).first(kTagAt));
  std::memcpy(greeting.data() + kTagAt, tag.data(), tag.size());
  return true;
}

bool TunnelSession::next_greeting(TimePoint now, Header& greeting) {
  if (answers_ != 0) {
    return say(greeting, kAnswer, questions_[--answers_], next_);
  }
  if (asking_ && now >= ask_at_) {
    asking_ = false;
    ask_at_ = now + kInterval;
    return say(greeting, kAsk, question_, 0);
  }
  if (missing_ && now >= miss_at_) {
    missing_ = false;
    miss_at_ = now + kInterval;
    return say(greeting, kMissing, 0, 0);
  }
  return false;
}

}  // namespace weft::srd
