#include "training/internal/key_stream.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>
#include <string>

#include "codec/digest.h"

namespace varda::training {
namespace {

std::uint32_t little_endian(const std::uint8_t* bytes) {
  return std::uint32_t{bytes[0]} | std::uint32_t{bytes[1]} << 8 | std::uint32_t{bytes[2]} << 16 |
         std::uint32_t{bytes[3]} << 24;
}

void quarter_round(std::uint32_t& a, std::uint32_t& b, std::uint32_t& c, std::uint32_t& d) {
  a += b;
  d = std::rotl(d ^ a, 16);
  c += d;
  b = std::rotl(b ^ c, 12);
  a += b;
  d = std::rotl(d ^ a, 8);
  c += d;
  b = std::rotl(b ^ c, 7);
}

}  // namespace

std::array<std::uint32_t, 16> chacha20_block(std::span<const std::uint8_t, 32> key,
                                             std::uint32_t counter,
                                             std::span<const std::uint8_t, 12> nonce) {
  std::array<std::uint32_t, 16> start = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
  for (std::size_t i = 0; i < 8; ++i) start[4 + i] = little_endian(&key[4 * i]);
  start[12] = counter;
  for (std::size_t i = 0; i < 3; ++i) start[13 + i] = little_endian(&nonce[4 * i]);
  std::array<std::uint32_t, 16> x = start;
  for (int i = 0; i < 10; ++i) {
    for (std::size_t j = 0; j < 4; ++j) quarter_round(x[j], x[4 + j], x[8 + j], x[12 + j]);
    for (std::size_t j = 0; j < 4; ++j)
      quarter_round(x[j], x[4 + (j + 1) % 4], x[8 + (j + 2) % 4], x[12 + (j + 3) % 4]);
  }
  for (std::size_t i = 0; i < 16; ++i) x[i] += start[i];
  return x;
}

KeyStream::KeyStream(std::span<const std::uint8_t, 32> key, std::string_view label) {
  std::string text(reinterpret_cast<const char*>(key.data()), key.size());
  text += label;
  key_ = codec::Sha256::of(text).bytes;
}

std::uint64_t KeyStream::next() {
  if (used_ == numbers_.size()) {
    // The nonce has the upper half of the number of the block, so a stream never repeats.
    std::array<std::uint8_t, 12> nonce{};
    const auto upper = static_cast<std::uint32_t>(block_ >> 32);
    std::memcpy(nonce.data(), &upper, sizeof upper);
    numbers_ = chacha20_block(key_, static_cast<std::uint32_t>(block_), nonce);
    ++block_;
    used_ = 0;
  }
  const std::uint64_t low = numbers_[used_], high = numbers_[used_ + 1];
  used_ += 2;
  return high << 32 | low;
}

double KeyStream::unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }

double KeyStream::normal() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  const double radius = std::sqrt(-2 * std::log(1 - unit()));
  const double angle = 2 * std::numbers::pi * unit();
  spare_ = radius * std::sin(angle);
  has_spare_ = true;
  return radius * std::cos(angle);
}

}  // namespace varda::training
