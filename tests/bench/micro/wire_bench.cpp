// Owns the cost of checksums, headers and envelopes: nanoseconds per packet, in the cache.
//
// Everything is in the cache, and each loop does nothing else: the numbers are lower bounds of what
// a packet costs, and good for comparing two versions on one machine.
#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "srd/net/crc32c.hpp"
#include "srd/net/envelope.hpp"
#include "srd/wire/parse.hpp"
#include "srd/wire/srd_codec.hpp"

namespace weft::srd::wire {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kBurst = 32;
constexpr std::int64_t kPayload = 4096;

void crc32c_by(benchmark::State& state, const Crc32cMethod& method) {
  const Bytes bytes(static_cast<std::size_t>(state.range(0)), std::byte{0x5A});
  std::uint32_t crc = 0;
  for (auto _ : state) {
    crc = method.update(crc, bytes);
    benchmark::DoNotOptimize(crc);
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

// As many as this processor can do; "crc32c/dispatched" is what the transport calls.
[[maybe_unused]] const bool kRegistered = [] {
  const auto sizes = {64, 256, 1024, 4096, 8192};
  for (const Crc32cMethod& method : crc32c_methods()) {
    for (const auto size : sizes) {
      benchmark::RegisterBenchmark((std::string{"crc32c/"} + method.name).c_str(),
                                   [&method](benchmark::State& state) { crc32c_by(state, method); })
          ->Arg(size);
    }
  }
  return true;
}();

void crc32c_dispatched(benchmark::State& state) { crc32c_by(state, {"", &crc32c}); }
BENCHMARK(crc32c_dispatched)->Name("crc32c/dispatched")->Arg(16)->Arg(64)->Arg(4096);

Address address(bool v4, unsigned last) {
  Address result;
  if (v4) {
    return Address::v4(10, 0, 0, last);
  }
  result.bytes[0] = std::byte{0xFD};
  result.bytes[15] = static_cast<std::byte>(last);
  return result;
}

// A burst of frames to changing peers along changing paths; range(0): 4 or 6.
void envelope_build(benchmark::State& state) {
  const bool v4 = state.range(0) == 4;
  const auto writer = net::EnvelopeWriter::make(address(v4, 1), wire::SrdCodec::kPorts);
  std::array<Address, kBurst> peers;
  for (std::size_t i = 0; i < kBurst; ++i) {
    peers[i] = address(v4, static_cast<unsigned>(i) + 2);
  }
  Bytes frames(kBurst * 128);
  for (auto _ : state) {
    for (std::size_t i = 0; i < kBurst; ++i) {
      benchmark::DoNotOptimize(writer->write(frames.data() + i * 128, peers[i],
                                             PathId{static_cast<std::uint16_t>(i)}, Ecn::capable_0,
                                             wire::kDscpData, 64 + i));
    }
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kBurst));
}
BENCHMARK(envelope_build)->Arg(4)->Arg(6);

// Separate frames, as they lie apart in a ring.
void envelope_parse(benchmark::State& state) {
  const bool v4 = state.range(0) == 4;
  const auto writer = net::EnvelopeWriter::make(address(v4, 1), wire::SrdCodec::kPorts);
  std::vector<Bytes> frames(kBurst, Bytes(writer->size() + 128));
  for (std::size_t i = 0; i < kBurst; ++i) {
    benchmark::DoNotOptimize(writer->write(frames[i].data(), address(v4, 2),
                                           PathId{static_cast<std::uint16_t>(i)}, Ecn::capable_0,
                                           wire::kDscpData, 128));
  }
  for (auto _ : state) {
    for (const Bytes& frame : frames) {
      net::Envelope envelope = net::Envelope::parse(frame, wire::SrdCodec::kPorts);
      benchmark::DoNotOptimize(envelope);
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kBurst));
}
BENCHMARK(envelope_parse)->Arg(4)->Arg(6);

DataHeader write_header() {
  DataHeader header{};
  header.common.version = kVersion;
  header.common.type = static_cast<std::uint8_t>(PacketType::write);
  header.common.source_life = 1;
  header.payload_length = kPayload;
  header.message_length = kPayload;
  return header;
}

void header_store(benchmark::State& state) {
  Bytes bytes(sizeof(DataHeader));
  DataHeader header = write_header();
  std::uint32_t psn = 0;
  for (auto _ : state) {
    header.psn = ++psn;
    header.back = static_cast<std::uint16_t>(psn & 1023);
    header.send_time = psn;
    header.remote_address = psn;
    store(bytes.data(), header);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(header_store);

// The clobber makes the compiler read the bytes again each time.
void header_parse(benchmark::State& state) {
  Bytes bytes(sizeof(DataHeader));
  store(bytes.data(), write_header());
  for (auto _ : state) {
    benchmark::ClobberMemory();
    const ParsedPacket packet = parse_packet(bytes, kPayload);
    benchmark::DoNotOptimize(packet.ok() ? packet.data().psn.value() : 0);
  }
}
BENCHMARK(header_parse);

// range(0): words of the selective map.
void ack_parse(benchmark::State& state) {
  AckHeader header{};
  header.common.version = kVersion;
  header.common.type = static_cast<std::uint8_t>(PacketType::ack);
  header.common.source_life = header.common.destination_life = 1;
  header.sack_words = static_cast<std::uint8_t>(state.range(0));
  Bytes bytes(sizeof header + header.sack_words * sizeof(std::uint64_t));
  store(bytes.data(), header);
  for (auto _ : state) {
    benchmark::ClobberMemory();
    const ParsedPacket packet = parse_packet(bytes);
    benchmark::DoNotOptimize(packet.ok() ? packet.ack().cumulative.value() : 0);
  }
}
BENCHMARK(ack_parse)->Arg(0)->Arg(4);

// Header and 4 KiB payload, as the engine has them: in two pieces.
void packet_seal(benchmark::State& state) {
  Bytes header(sizeof(DataHeader));
  store(header.data(), write_header());
  const Bytes payload(kPayload, std::byte{0x5A});
  for (auto _ : state) {
    seal(header, payload);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(packet_seal);

void packet_verify(benchmark::State& state) {
  Bytes header(sizeof(DataHeader));
  store(header.data(), write_header());
  const Bytes payload(kPayload, std::byte{0x5A});
  seal(header, payload);
  for (auto _ : state) {
    benchmark::ClobberMemory();
    const ParsedPacket packet = parse_packet(header, payload.size());
    benchmark::DoNotOptimize(verify_checksum(packet, payload, true));
  }
}
BENCHMARK(packet_verify);

}  // namespace
}  // namespace weft::srd::wire
