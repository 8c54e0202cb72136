// Accountant, mechanism and primitives, against published numbers.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>
#include <string>
#include <vector>

#include "base/rng.h"
#include "codec/digest.h"
#include "privacy/accountant.h"
#include "privacy/fixed_point.h"
#include "privacy/key_agreement.h"
#include "privacy/mask.h"
#include "privacy/mechanism.h"
#include "privacy/secret_sharing.h"

namespace varda::privacy {
namespace {

Key key_from(std::string_view hex) {
  Key out;
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<std::uint8_t>(std::stoi(std::string(hex.substr(2 * i, 2)), nullptr, 16));
  return out;
}
std::string hex_of(std::span<const std::uint8_t> bytes) {
  return codec::hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

// The table "Expected output" of tensorflow/privacy, tutorials/README.md: 60,000 samples, batches
// of 256, delta 1e-5.
TEST(Accountant, AgreesWithThePublishedTableOfDpSgd) {
  struct Row {
    double noise;
    int epochs;
    double epsilon;
  };
  for (const Row& row : {Row{1.3, 15, 1.19}, Row{1.1, 60, 3.01}, Row{0.7, 45, 7.10}}) {
    Accountant accountant;
    ASSERT_TRUE(accountant
                    .add({.noise_multiplier = row.noise, .sampling_rate = 256.0 / 60000},
                         row.epochs * 60000LL / 256)
                    .ok());
    const double epsilon = accountant.epsilon(1e-5, Accountant::Conversion::kMironov2017);
    EXPECT_NEAR(epsilon, row.epsilon, 0.01 * row.epsilon) << row.noise;
    EXPECT_LT(accountant.epsilon(1e-5), epsilon);
  }
}

// Expected: a midpoint sum of the integral of the Rényi divergence, 400,000 points.
TEST(Accountant, FractionalOrdersAgreeWithNumericalIntegration) {
  struct Row {
    double q, sigma, alpha, rdp;
  };
  for (const Row& row :
       {Row{0.01, 1.0, 1.5, 0.00012725374318869358}, Row{0.1, 2.0, 2.5, 0.0035940771993228306},
        Row{0.5, 0.8, 1.1, 0.25825953369233134}, Row{0.02, 1.1, 7.3, 0.002428284129492522},
        Row{0.3, 4.0, 10.9, 0.03597815391514484}})
    EXPECT_NEAR(rdp_of({row.sigma, row.q}, row.alpha), row.rdp, 1e-6 * row.rdp + 1e-12)
        << row.alpha;
}

TEST(Accountant, WholeOrdersContinueTheFractionalOnes) {
  for (const double q : {0.001, 0.02, 0.3, 0.9}) {
    for (const double sigma : {0.5, 1.0, 3.0}) {
      for (const double alpha : {2.0, 5.0, 11.0}) {
        const double whole = rdp_of({sigma, q}, alpha);
        const double beside = rdp_of({sigma, q}, alpha + 1e-7);
        EXPECT_NEAR(beside, whole, 1e-4 * whole + 1e-9) << q << " " << sigma << " " << alpha;
      }
    }
  }
}

TEST(Accountant, WithoutSamplingItIsTheClosedForm) {
  Accountant accountant;
  ASSERT_TRUE(accountant.add({.noise_multiplier = 2}, 10).ok());
  // rho + 2 sqrt(rho log(1/delta)) with rho = 10 / (2 * 2^2), the best order of all.
  const double rho = 1.25, best = rho + 2 * std::sqrt(rho * std::log(1e6));
  const double epsilon = accountant.epsilon(1e-6, Accountant::Conversion::kMironov2017);
  EXPECT_GE(epsilon, best);
  EXPECT_NEAR(epsilon, best, 0.001);
  EXPECT_LT(accountant.epsilon(1e-6), epsilon);
}

TEST(Accountant, EpsilonGrowsWithRoundsAndFallsWithNoise) {
  double before = 0;
  Accountant accountant;
  EXPECT_EQ(accountant.epsilon(1e-5), 0);
  for (int round = 0; round < 20; ++round) {
    ASSERT_TRUE(accountant.add({.noise_multiplier = 1.5, .sampling_rate = 0.1}).ok());
    EXPECT_GT(accountant.epsilon(1e-5), before);
    before = accountant.epsilon(1e-5);
  }
  Accountant quiet, loud;
  ASSERT_TRUE(quiet.add({.noise_multiplier = 1}).ok());
  ASSERT_TRUE(loud.add({.noise_multiplier = 4}).ok());
  EXPECT_GT(quiet.epsilon(1e-5), loud.epsilon(1e-5));
}

TEST(Accountant, RestoredSumsContinue) {
  Accountant first, second;
  ASSERT_TRUE(first.add({.noise_multiplier = 1.1, .sampling_rate = 0.05}, 7).ok());
  ASSERT_TRUE(second.restore(first.sums()).ok());
  EXPECT_EQ(first.epsilon(1e-5), second.epsilon(1e-5));
  EXPECT_FALSE(second.restore({1, 2}).ok());
  EXPECT_FALSE(second.restore(std::vector<double>(orders().size(), -1)).ok());
}

TEST(Accountant, WrongReleasesAreRefused) {
  Accountant accountant;
  EXPECT_FALSE(accountant.add({.noise_multiplier = 0}).ok());
  EXPECT_FALSE(accountant.add({.noise_multiplier = 1, .sampling_rate = 0}).ok());
  EXPECT_FALSE(accountant.add({.noise_multiplier = 1, .sampling_rate = 1.1}).ok());
  EXPECT_FALSE(accountant.add({.noise_multiplier = 1}, -1).ok());
  EXPECT_EQ(accountant.epsilon(1e-5), 0);
}

TEST(Mechanism, ClipAndDeviationFollowTheSensitivity) {
  EXPECT_EQ(clip_factor(0.5, 1), 1);
  EXPECT_EQ(clip_factor(4, 1), 0.25);
  EXPECT_DOUBLE_EQ(central_deviation(1.5, 2, 10), 0.3);
  EXPECT_DOUBLE_EQ(local_deviation(1.5, 2), 6);
}

TEST(Mechanism, NoiseIsStandardNormalAndRepeats) {
  std::vector<float> values(200'000), again(values.size());
  add_noise(key_from(std::string(64, '7')), 2, values);
  add_noise(key_from(std::string(64, '7')), 2, again);
  EXPECT_EQ(values, again);
  double sum = 0, squares = 0, fourth = 0;
  for (const float value : values) {
    sum += value;
    squares += double(value) * value;
    fourth += std::pow(value, 4);
  }
  const auto n = static_cast<double>(values.size());
  EXPECT_NEAR(sum / n, 0, 0.02);
  EXPECT_NEAR(squares / n, 4, 0.06);
  EXPECT_NEAR(fourth / n / 16, 3, 0.1);  // kurtosis
}

TEST(Mechanism, BlocksGetTheNoiseOfTheWholeVector) {
  const Key seed = key_from(std::string(64, '3'));
  std::vector<double> whole(1001), blocks(whole.size());
  add_noise(seed, 1, 0, whole);
  for (const std::size_t first : {600, 0, 300, 900}) {
    const std::size_t end = std::min<std::size_t>(first + 300, blocks.size());
    add_noise(seed, 1, first, std::span(blocks).subspan(first, end - first));
  }
  EXPECT_EQ(whole, blocks);
}

TEST(AdaptiveClip, MovesTowardsTheQuantile) {
  auto clip = AdaptiveClip::of({.first_clip = 10, .quantile = 0.5, .learning_rate = 0.2});
  ASSERT_TRUE(clip.ok());
  clip->update({10, 10, 10}, 0);  // all updates are whole: the clip is too large
  EXPECT_LT(clip->clip(), 10);
  // Lengths are 1, 2, … 100: the median is 50.
  for (int round = 0; round < 300; ++round)
    clip->update({static_cast<std::uint64_t>(std::clamp(clip->clip(), 0.0, 100.0)), 100, 100}, 0);
  EXPECT_NEAR(clip->clip(), 50, 2);
  for (int round = 0; round < 10; ++round) clip->update({0, 100, 100}, 0);
  EXPECT_GT(clip->clip(), 100);
}

// The noise of the count fits this sensitivity, see SplitsTheNoiseBetweenUpdatesAndCount.
TEST(AdaptiveClip, OneClientChangesTheCountByHalf) {
  const double rate = 0.2;
  const auto clip_after = [&](const AdaptiveClip::Count& count) {
    AdaptiveClip clip =
        AdaptiveClip::of({.first_clip = 1, .quantile = 0.5, .learning_rate = rate}).value();
    clip.update(count, 0);
    return std::log(clip.clip());
  };
  // One of ten clients is absent, or sends a whole update, or one that is cut.
  const double absent = clip_after({.whole = 6, .received = 9, .clients = 10});
  const double whole = clip_after({.whole = 7, .received = 10, .clients = 10});
  const double cut = clip_after({.whole = 6, .received = 10, .clients = 10});
  EXPECT_NEAR(absent - whole, rate * 0.5 / 10, 1e-12);
  EXPECT_NEAR(cut - absent, rate * 0.5 / 10, 1e-12);
}

TEST(AdaptiveClip, AbsentClientsMoveNoClip) {
  AdaptiveClip clip = AdaptiveClip::of({.first_clip = 1, .quantile = 0.5}).value();
  clip.update({.whole = 2, .received = 4, .clients = 20}, 0);
  EXPECT_DOUBLE_EQ(clip.clip(), 1);
}

TEST(AdaptiveClip, SplitsTheNoiseBetweenUpdatesAndCount) {
  const auto clip = AdaptiveClip::of({.count_deviation = 5});
  ASSERT_TRUE(clip.ok());
  const auto z = clip->update_multiplier(1, 100);
  ASSERT_TRUE(z.ok());
  EXPECT_NEAR(1 / (*z * *z) + 1 / 100.0, 1, 1e-12);
  EXPECT_FALSE(clip->update_multiplier(10, 100).ok());
  EXPECT_FALSE(AdaptiveClip::of({.quantile = 1}).ok());
}

// RFC 7748, section 6.1: Bob's keys, Alice's public key, and the secret of both.
TEST(KeyAgreement, X25519HasTheKeysOfTheRfc) {
  const AgreementKey bob = AgreementKey::of(
      key_from("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"));
  EXPECT_EQ(hex_of(bob.public_key()),
            "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f");
  const Key alice = key_from("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a");
  const Key secret = key_from("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742");
  const std::string_view text(reinterpret_cast<const char*>(secret.data()), secret.size());
  EXPECT_EQ(*bob.shared(alice, "x"), derive(text, "x"));
  EXPECT_NE(*bob.shared(alice, "x"), *bob.shared(alice, "y"));
}

TEST(KeyAgreement, BothOwnersDeriveOneKey) {
  const AgreementKey a = AgreementKey::generate(), b = AgreementKey::generate();
  const auto one = a.shared(b.public_key(), "x"), two = b.shared(a.public_key(), "x");
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_EQ(*one, *two);
}

TEST(KeyAgreement, PointsOfSmallOrderAreRefused) {
  EXPECT_FALSE(AgreementKey::generate().shared(Key{}, "x").ok());
}

// RFC 5869, appendix A.3: no salt, no info. The first 32 of 42 bytes.
TEST(KeyAgreement, HkdfHasTheBytesOfTheRfc) {
  EXPECT_EQ(hex_of(derive(std::string(22, '\x0b'), "")),
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d");
}

TEST(KeyAgreement, SealedMessagesOpenOnlyUnchanged) {
  const Key key = random_key();
  const std::string sealed = seal(key, "secret", "a to b");
  ASSERT_EQ(*open_sealed(key, sealed, "a to b"), "secret");
  EXPECT_FALSE(open_sealed(key, sealed, "a to c").ok());
  EXPECT_FALSE(open_sealed(random_key(), sealed, "a to b").ok());
  for (std::size_t i = 0; i < sealed.size(); ++i) {
    std::string changed = sealed;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(open_sealed(key, changed, "a to b").ok()) << i;
  }
  EXPECT_FALSE(open_sealed(key, sealed.substr(0, 20), "a to b").ok());
}

// AES-256 of the blocks 0 and 1 under the key 0, as in test case 13 of the GCM specification.
TEST(KeyStream, IsAesInCounterMode) {
  KeyStream stream{Key{}};
  std::vector<std::uint8_t> first(5), rest(27);
  stream.fill(first);
  stream.fill(rest);
  first.insert(first.end(), rest.begin(), rest.end());
  EXPECT_EQ(hex_of(first), "dc95c078a2408989ad48a21492842087530f8afbc74536b9a963b4f1c4cb738b");
}

TEST(KeyStream, MasksOfBothSignsCancel) {
  std::vector<std::uint32_t> values(100'001);
  std::iota(values.begin(), values.end(), 0U);
  const auto before = values;
  const Key key = random_key();
  add_mask(key, Sign::kPlus, values);
  EXPECT_NE(values, before);
  add_mask(key, Sign::kMinus, values);
  EXPECT_EQ(values, before);
}

TEST(SecretSharing, AnyThresholdOfSharesGivesTheSecret) {
  const auto rng = seeded_rng(5);
  for (int round = 0; round < 100; ++round) {
    const std::size_t count = 1 + rng->below(20), threshold = 1 + rng->below(count);
    const Key secret = random_key();
    std::vector<Share> shares = split(secret, threshold, count);
    for (std::size_t i = count; i > 1; --i) std::swap(shares[i - 1], shares[rng->below(i)]);
    EXPECT_EQ(*join_shares(shares, threshold), secret);
    if (threshold > 1) {
      EXPECT_NE(*join_shares(shares, threshold - 1), secret);
    }
    EXPECT_FALSE(join_shares(std::span(shares).first(threshold - 1), threshold).ok());
  }
}

TEST(SecretSharing, RepeatedSharesAreRefused) {
  std::vector<Share> shares = split(random_key(), 2, 3);
  shares[1] = shares[0];
  EXPECT_FALSE(join_shares(shares, 2).ok());
  shares[1].x = 0;
  EXPECT_FALSE(join_shares(shares, 2).ok());
}

// All polynomials of degree 1 over GF(2^8) with f(1) = 1 and f(2) = 2 have f(x) = x.
TEST(SecretSharing, UsesTheFieldOfAes) {
  Share one{1, {}}, two{2, {}}, three{3, {}};
  one.y[0] = 1;
  two.y[0] = 2;
  three.y[0] = 3;
  EXPECT_EQ(*join_shares(std::vector{one, two}, 2), Key{});
  EXPECT_EQ(*join_shares(std::vector{three, one}, 2), Key{});
}

TEST(FixedPoint, SumsComeBackWithinTheSteps) {
  const auto rng = seeded_rng(9);
  for (const std::uint64_t terms : {1ULL, 3ULL, 1000ULL}) {
    const auto fixed = FixedPoint::of(2.5, terms);
    ASSERT_TRUE(fixed.ok());
    KeyStream random{Key{}};
    std::vector<std::uint32_t> sum(50);
    std::vector<double> expected(sum.size());
    for (std::uint64_t term = 0; term < terms; ++term) {
      std::vector<float> values(sum.size());
      for (float& value : values) value = static_cast<float>(rng->unit() * 6 - 3);
      std::vector<std::uint32_t> encoded(sum.size());
      fixed->encode(values, 1, random, encoded);
      for (std::size_t i = 0; i < sum.size(); ++i) {
        sum[i] += encoded[i];
        expected[i] += std::clamp(double(values[i]), -2.5, 2.5);
      }
    }
    for (std::size_t i = 0; i < sum.size(); ++i)
      EXPECT_NEAR(fixed->decode(sum[i]), expected[i], fixed->step() * double(terms) + 1e-9);
  }
}

TEST(FixedPoint, ExtremesDoNotOverflow) {
  for (const std::uint64_t terms : {1ULL, 7ULL, 1ULL << 20}) {
    const auto fixed = FixedPoint::of(1e-3, terms);
    ASSERT_TRUE(fixed.ok());
    KeyStream random{Key{}};
    const std::vector<float> values = {INFINITY, -INFINITY, NAN, 1e30F};
    std::vector<std::uint32_t> encoded(values.size());
    fixed->encode(values, 1, random, encoded);
    const auto n = static_cast<std::uint32_t>(terms);
    EXPECT_NEAR(fixed->decode(encoded[0] * n), 1e-3 * double(terms), 1e-5 * double(terms));
    EXPECT_NEAR(fixed->decode(encoded[1] * n), -1e-3 * double(terms), 1e-5 * double(terms));
  }
  EXPECT_FALSE(FixedPoint::of(0, 1).ok());
  EXPECT_FALSE(FixedPoint::of(1, 0).ok());
}

}  // namespace
}  // namespace varda::privacy
