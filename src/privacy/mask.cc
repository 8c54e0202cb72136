#include "privacy/mask.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <openssl/evp.h>

#include "base/check.h"

namespace varda::privacy {

namespace {

static_assert(std::endian::native == std::endian::little, "masks are little-endian words");

constexpr std::size_t kBlockBytes = 32 << 10;  // stays in the first cache

struct FreeStreamCipher {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};

}  // namespace

struct KeyStream::Impl {
  std::unique_ptr<EVP_CIPHER_CTX, FreeStreamCipher> cipher{EVP_CIPHER_CTX_new()};
};

KeyStream::KeyStream(const Key& key, std::uint64_t first) : impl_(std::make_unique<Impl>()) {
  unsigned char counter[16] = {};
  for (int i = 0; i < 8; ++i) counter[15 - i] = static_cast<unsigned char>(first >> (8 * i));
  CHECK(impl_->cipher != nullptr && EVP_EncryptInit_ex(impl_->cipher.get(), EVP_aes_256_ctr(),
                                                       nullptr, key.data(), counter) == 1);
}

KeyStream::~KeyStream() = default;

void KeyStream::fill(std::span<std::uint8_t> out) {
  std::fill(out.begin(), out.end(), 0);  // the stream is the encryption of zeros
  while (!out.empty()) {
    const auto now = out.first(std::min(out.size(), kBlockBytes));
    int size = 0;
    CHECK(EVP_EncryptUpdate(impl_->cipher.get(), now.data(), &size, now.data(),
                            static_cast<int>(now.size())) == 1);
    out = out.subspan(now.size());
  }
}

void add_mask(const Key& key, Sign sign, std::span<std::uint32_t> values) {
  KeyStream stream(key);
  std::uint32_t block[kBlockBytes / sizeof(std::uint32_t)];
  while (!values.empty()) {
    const auto now = values.first(std::min(values.size(), std::size(block)));
    stream.fill({reinterpret_cast<std::uint8_t*>(block), now.size() * sizeof(block[0])});
    if (sign == Sign::kPlus) {
      for (std::size_t i = 0; i < now.size(); ++i) now[i] += block[i];
    } else {
      for (std::size_t i = 0; i < now.size(); ++i) now[i] -= block[i];
    }
    values = values.subspan(now.size());
  }
}

void Noise::refill() {
  std::uint64_t words[2 * kPairs];
  stream_.fill({reinterpret_cast<std::uint8_t*>(words), sizeof words});
  for (std::size_t i = 0; i < kPairs; ++i) {
    // (0, 1], so that the logarithm is finite.
    const double radius = (static_cast<double>(words[2 * i] >> 11) + 1) * 0x1p-53;
    const double angle = static_cast<double>(words[2 * i + 1] >> 11) * 0x1p-53 * 2 * M_PI;
    const double length = std::sqrt(-2 * std::log(radius));
    ready_[2 * i] = length * std::cos(angle);
    ready_[2 * i + 1] = length * std::sin(angle);
  }
  used_ = 0;
}

double Noise::next() {
  if (used_ == 2 * kPairs) refill();
  return ready_[used_++];
}

}  // namespace varda::privacy
