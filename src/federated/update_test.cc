#include "federated/update.h"

#include <cmath>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>

#include "federated/testing/updates.h"
#include "os/testing/test_directory.h"
#include "tensor/half.h"

namespace varda::federated {
namespace update_test {

using tensor::DType;
using ::testing::ElementsAre;
using testing::flat_layout;
using ::testing::HasSubstr;
using testing::mixed_layout;
using testing::random_values;
using testing::update_of;

std::vector<float> all(const UpdateReader& update) {
  std::vector<float> out(update.layout().size());
  update.read(0, out);
  return out;
}

double norm(std::span<const float> values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

/// A file with these tensors and good metadata.
std::string file_of(const std::vector<tensor::Named>& tensors, SafetensorsMetadata changes = {}) {
  SafetensorsMetadata metadata = {{"format", "varda-update/1"},
                                  {"task", "1-train"},
                                  {"base", std::string(64, '0')},
                                  {"samples", "3"},
                                  {"steps", "2"},
                                  {"encoding", "dense"},
                                  {"metrics", "{\"loss\":0.5}"}};
  for (auto& [name, value] : changes) metadata[name] = value;
  return write_safetensors(tensors, metadata).value();
}

template <typename T>
tensor::Named named(std::string name, DType dtype, const std::vector<T>& values) {
  return {std::move(name),
          tensor::Tensor::of<T>(dtype, {static_cast<std::int64_t>(values.size())}, values).value()};
}

Refusal refusal_of(std::string bytes, const UpdateLimits& limits = {}) {
  auto reader = UpdateReader::of(std::move(bytes), flat_layout(3), limits);
  return reader.ok() ? Refusal{RefusalReason::kIo, Error(Code::kInternal, "accepted")}
                     : reader.error();
}

TEST(Update, MetadataTravels) {
  UpdateInfo info;
  info.task = "3-train-5f1c";
  info.base = codec::Sha256::of("model");
  info.samples = 640;
  info.steps = 20;
  info.metrics = codec::Json::object({{"loss", 0.25}, {"accuracy", 1}});
  const auto layout = flat_layout(2);
  const std::vector<float> delta = {3, -4};
  const std::string bytes = encode_update(info, *layout, delta).value();
  const auto update = UpdateReader::of(bytes, layout, {.task = info.task, .base = info.base});
  ASSERT_TRUE(update.ok()) << update.error().error;
  EXPECT_EQ((*update)->info().task, info.task);
  EXPECT_EQ((*update)->info().base, info.base);
  EXPECT_EQ((*update)->info().samples, 640u);
  EXPECT_EQ((*update)->info().steps, 20u);
  EXPECT_EQ((*update)->info().metrics, info.metrics);
  EXPECT_EQ((*update)->encoding(), Encoding::kDense);
  EXPECT_EQ((*update)->bytes(), bytes.size());
  EXPECT_EQ((*update)->norm(), 5);
  EXPECT_THAT(all(**update), ElementsAre(3, -4));
}

TEST(Update, EachDenseTypeIsRoundedOnce) {
  const auto layout = mixed_layout(1000);
  const std::vector<float> delta = random_values(1000, 1);
  EXPECT_EQ(all(*update_of(layout, delta)), delta);
  EXPECT_EQ(all(*update_of(layout, delta, {.dtype = DType::kFp64})), delta);
  std::vector<float> half = delta, brain = delta;
  for (float& value : half) value = tensor::float_of(tensor::half_of(value));
  for (float& value : brain) value = tensor::float_of_bf16(tensor::bf16_of(value));
  EXPECT_EQ(all(*update_of(layout, delta, {.dtype = DType::kFp16})), half);
  EXPECT_EQ(all(*update_of(layout, delta, {.dtype = DType::kBf16})), brain);
}

TEST(Update, BlocksFromAnyPlaceEqualTheWhole) {
  const auto layout = mixed_layout(3000);
  std::vector<float> delta = random_values(3000, 2);
  // Tensors of zeros do not travel.
  for (std::size_t i = 0; i < 41; ++i) delta[i + layout->tensors()[2].first] = 0;
  for (const Encoding encoding : {Encoding::kDense, Encoding::kInt8, Encoding::kTopK}) {
    for (const DType dtype : {DType::kFp32, DType::kFp16}) {
      const auto update =
          update_of(layout, delta, {.encoding = encoding, .dtype = dtype, .keep = 0.2});
      const std::vector<float> whole = all(*update);
      for (std::size_t first = 0; first < 3000; first += 37) {
        std::vector<float> block(std::min<std::size_t>(300, 3000 - first), 9);
        const auto view = update->view(first, block);
        const std::vector<float> expected(
            whole.begin() + static_cast<std::ptrdiff_t>(first),
            whole.begin() + static_cast<std::ptrdiff_t>(first + block.size()));
        ASSERT_EQ(std::vector<float>(view.begin(), view.end()), expected);
        update->read(first, block);
        ASSERT_EQ(block, expected);
      }
    }
  }
}

TEST(Update, Int8IsCloseUnbiasedAndSmall) {
  const auto layout = flat_layout(100'000);
  const std::vector<float> delta = random_values(100'000, 3);
  std::vector<double> mean(delta.size());
  constexpr int kSeeds = 64;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const auto update =
        update_of(layout, delta,
                  {.encoding = Encoding::kInt8, .seed = static_cast<std::uint64_t>(seed) << 40});
    EXPECT_LT(static_cast<double>(update->bytes()), 400'000 / 3.5);
    const std::vector<float> values = all(*update);
    for (std::size_t i = 0; i < mean.size(); ++i) {
      ASSERT_NEAR(values[i], delta[i], 1.0001 / 127);  // one step of a block with greatest value 1
      mean[i] += values[i] / kSeeds;
    }
  }
  // The deviation of a mean of 64 roundings is at most 1/127/2/8.
  double bias = 0;
  for (std::size_t i = 0; i < mean.size(); ++i) {
    EXPECT_NEAR(mean[i], delta[i], 6.0 / 127 / 16);
    bias += (mean[i] - delta[i]) / static_cast<double>(mean.size());
  }
  EXPECT_NEAR(bias, 0, 6.0 / 127 / 16 / std::sqrt(100'000.0));
}

TEST(Update, EqualSeedsGiveEqualBytes) {
  const auto layout = mixed_layout(2000);
  const std::vector<float> delta = random_values(2000, 4);
  const auto bytes = [&](std::uint64_t seed) {
    return encode_update({.samples = 1}, *layout, delta,
                         {.encoding = Encoding::kInt8, .seed = seed})
        .value();
  };
  EXPECT_EQ(bytes(1), bytes(1));
  EXPECT_NE(bytes(1), bytes(2));
}

TEST(Update, TopKKeepsTheGreatestMagnitudes) {
  const auto layout = Layout::make({{"a", DType::kFp32, {3}}, {"b", DType::kFp32, {3}}}).value();
  const std::vector<float> delta = {1, -5, 2, 0, 3, -2};
  EXPECT_THAT(all(*update_of(layout, delta, {.encoding = Encoding::kTopK, .keep = 0.5})),
              ElementsAre(0, -5, 2, 0, 3, 0));  // of the two with magnitude 2 the first
  EXPECT_THAT(all(*update_of(layout, delta, {.encoding = Encoding::kTopK, .keep = 1e-9})),
              ElementsAre(0, -5, 0, 0, 0, 0));
  EXPECT_EQ(all(*update_of(layout, delta, {.encoding = Encoding::kTopK, .keep = 1})), delta);
}

TEST(Update, ErrorFeedbackKeepsWhatTheEncodingLoses) {
  const auto layout = mixed_layout(500);
  struct {
    Encoding encoding;
    DType dtype;
  } cases[] = {{Encoding::kTopK, DType::kFp32},
               {Encoding::kTopK, DType::kFp16},
               {Encoding::kInt8, DType::kFp32},
               {Encoding::kDense, DType::kBf16}};
  for (const auto& one : cases) {
    std::vector<float> residual(500), sent(500), wanted(500);
    for (std::uint64_t round = 0; round < 60; ++round) {
      const std::vector<float> delta = random_values(500, 10 + round, 0.01);
      const std::vector<float> values = all(*update_of(layout, delta,
                                                       {.encoding = one.encoding,
                                                        .dtype = one.dtype,
                                                        .keep = 0.1,
                                                        .seed = round,
                                                        .residual = residual}));
      for (std::size_t i = 0; i < 500; ++i) {
        sent[i] += values[i];
        wanted[i] += delta[i];
      }
    }
    // Sent and left over are the sum of all updates.
    for (std::size_t i = 0; i < 500; ++i) EXPECT_NEAR(sent[i] + residual[i], wanted[i], 1e-5);
  }
}

TEST(Update, AResidualStaysWhenEncodingFails) {
  const auto layout = flat_layout(2);
  std::vector<float> residual = {1, 70'000};
  const std::vector<float> delta = {1, 1};
  EXPECT_THAT(
      encode_update({.samples = 1}, *layout, delta, {.dtype = DType::kFp16, .residual = residual})
          .error()
          .message(),
      HasSubstr("F16"));
  EXPECT_THAT(residual, ElementsAre(1, 70'000));
}

TEST(Update, ControlVariatesTravelBesideTheDelta) {
  const auto layout = mixed_layout(700);
  const std::vector<float> delta = random_values(700, 5), control = random_values(700, 6);
  const auto update = update_of(layout, delta, {.control = control});
  EXPECT_TRUE(update->has_control());
  EXPECT_NEAR(update->control_norm(), norm(control), 1e-9);
  std::vector<float> values(700);
  update->read_control(0, values);
  EXPECT_EQ(values, control);
  EXPECT_EQ(all(*update), delta);
  const auto compact =
      update_of(layout, delta, {.encoding = Encoding::kInt8, .seed = 3, .control = control});
  compact->read_control(100, std::span(values).first(50));
  for (std::size_t i = 0; i < 50; ++i) EXPECT_NEAR(values[i], control[100 + i], 1.0 / 120);

  const auto without = update_of(layout, delta);
  EXPECT_FALSE(without->has_control());
  without->read_control(0, values);
  EXPECT_EQ(values, std::vector<float>(700));
  const auto zeros = update_of(layout, delta, {.control = std::vector<float>(700)});
  EXPECT_TRUE(zeros->has_control());
}

TEST(Update, FilesAreReadByBlocksAndCheckedOnce) {
  const os::testing::TestDirectory directory;
  const auto layout = mixed_layout(50'000);
  const std::vector<float> delta = random_values(50'000, 7);
  directory.write("u", encode_update({.samples = 2}, *layout, delta).value());
  auto& fs = os::real_file_system();
  const auto first = UpdateReader::open(fs, directory / "u", layout);
  ASSERT_TRUE(first.ok()) << first.error().error;
  const auto again = UpdateReader::open(
      fs, directory / "u", layout,
      {.checked = UpdateLimits::Checked{.norm = (*first)->norm(), .control_norm = 0}});
  EXPECT_EQ((*again)->norm(), (*first)->norm());
  EXPECT_EQ(all(**again), delta);
  EXPECT_TRUE((*again)->status().ok());
  // A file that loses its end shows in status(), and no value is made up.
  std::filesystem::resize_file(directory / "u", 100'000);
  EXPECT_EQ(all(**again).back(), 0);
  EXPECT_EQ((*again)->status().error().code(), Code::kCorrupt);
  const auto missing = UpdateReader::open(fs, directory / "none", layout);
  EXPECT_EQ(missing.error().reason, RefusalReason::kIo);
}

TEST(Update, EncodingsReadTheSameFromFilesAsFromMemory) {
  const os::testing::TestDirectory directory;
  const auto layout = mixed_layout(200'000);
  const std::vector<float> delta = random_values(200'000, 8), control = random_values(200'000, 9);
  for (const Encoding encoding : {Encoding::kDense, Encoding::kInt8, Encoding::kTopK}) {
    for (const DType dtype : {DType::kFp32, DType::kFp16}) {
      const std::string bytes =
          encode_update({.samples = 1}, *layout, delta,
                        {.encoding = encoding, .dtype = dtype, .keep = 0.3, .control = control})
              .value();
      directory.write("u", bytes);
      const auto memory = UpdateReader::of(bytes, layout).value();
      const auto file = UpdateReader::open(os::real_file_system(), directory / "u", layout).value();
      EXPECT_EQ(file->norm(), memory->norm());
      EXPECT_EQ(file->control_norm(), memory->control_norm());
      EXPECT_EQ(all(*file), all(*memory));
      std::vector<float> a(999), b(999);
      for (const std::size_t first : {0, 1, 77'777, 199'001}) {
        file->read_control(first, a);
        memory->read_control(first, b);
        EXPECT_EQ(a, b);
      }
    }
  }
}

TEST(Update, HostileFilesAreRefusedWithTheReason) {
  const std::vector<float> f3 = {1, 2, 3};
  const auto w = named<float>("w", DType::kFp32, f3);
  const auto index = [](std::vector<std::uint32_t> values) {
    return named<std::uint32_t>("w#index", DType::kUint32, values);
  };
  const auto value = [](std::vector<float> values) {
    return named<float>("w#value", DType::kFp32, values);
  };
  const auto i8 = named<std::int8_t>("w", DType::kInt8, {1, 2, 3});
  const struct {
    std::string bytes;
    RefusalReason reason;
    const char* expected;
  } cases[] = {
      {"abc", RefusalReason::kFormat, "8 bytes"},
      {file_of({w}).substr(0, 200), RefusalReason::kFormat, "header"},
      {file_of({w}, {{"format", "x"}}), RefusalReason::kFormat, "\"format\""},
      {file_of({w}, {{"base", "x"}}), RefusalReason::kFormat, "\"base\""},
      {file_of({w}, {{"samples", "0"}}), RefusalReason::kFormat, "\"samples\""},
      {file_of({w}, {{"samples", "-1"}}), RefusalReason::kFormat, "\"samples\""},
      {file_of({w}, {{"samples", "1e3"}}), RefusalReason::kFormat, "\"samples\""},
      {file_of({w}, {{"samples", "9007199254740993"}}), RefusalReason::kFormat, "\"samples\""},
      {file_of({w}, {{"steps", "18446744073709551616"}}), RefusalReason::kFormat, "\"steps\""},
      {file_of({w}, {{"encoding", "zip"}}), RefusalReason::kFormat, "\"encoding\""},
      {file_of({w}, {{"metrics", "[]"}}), RefusalReason::kFormat, "\"metrics\""},
      {file_of({w}, {{"metrics", "{\"a\":\"b\"}"}}), RefusalReason::kFormat, "metric \"a\""},
      {file_of({w}, {{"task", "2-train"}}), RefusalReason::kTask, "2-train"},
      {file_of({w}, {{"base", std::string(64, '1')}}), RefusalReason::kBase, "1111"},
      {file_of({named<float>("x", DType::kFp32, f3)}), RefusalReason::kShape, "\"x\""},
      {file_of({named<float>("w#other", DType::kFp32, f3)}), RefusalReason::kShape, "w#other"},
      {file_of({named<float>("w", DType::kFp32, {1, 2})}), RefusalReason::kShape, "[2]"},
      {file_of({named<std::int32_t>("w", DType::kInt32, {1, 2, 3})}), RefusalReason::kFormat,
       "INT32"},
      {file_of({i8}), RefusalReason::kFormat, "INT8"},
      {file_of({i8, named<float>("w#scale", DType::kFp32, {1, 2})}), RefusalReason::kShape, "[1]"},
      {file_of({i8, named<double>("w#scale", DType::kFp64, {1})}), RefusalReason::kFormat, "F32"},
      {file_of({w, named<float>("w#scale", DType::kFp32, {1})}), RefusalReason::kFormat, "I8"},
      {file_of({named<float>("w#scale", DType::kFp32, {1})}), RefusalReason::kFormat, "lacks"},
      {file_of({i8, named<float>("w#scale", DType::kFp32, {NAN})}), RefusalReason::kNotFinite,
       "scale"},
      {file_of({w, index({0}), value({1})}), RefusalReason::kFormat, "both"},
      {file_of({index({0})}), RefusalReason::kFormat, "lacks"},
      {file_of({index({0, 1}), value({1})}), RefusalReason::kShape, "[2]"},
      {file_of({index({0, 1, 2, 2}), value({1, 1, 1, 1})}), RefusalReason::kShape, "[4]"},
      {file_of({index({1, 1}), value({1, 1})}), RefusalReason::kFormat, "must rise"},
      {file_of({index({2, 1}), value({1, 1})}), RefusalReason::kFormat, "must rise"},
      {file_of({index({0, 3}), value({1, 1})}), RefusalReason::kFormat, "below 3"},
      {file_of({index({0, 1}), value({1, HUGE_VALF})}), RefusalReason::kNotFinite, "finite"},
      {file_of({named<float>("w", DType::kFp32, {1, NAN, 3})}), RefusalReason::kNotFinite, "at 1"},
      {file_of({named<double>("w", DType::kFp64, {1, 2, 1e39})}), RefusalReason::kNotFinite,
       "at 2"},
      {file_of({named<float>("w", DType::kFp32, {6, 0, 8.1f})}), RefusalReason::kNorm, "limit"},
  };
  const UpdateLimits limits = {.task = "1-train", .base = codec::Sha256{}, .norm_max = 10};
  EXPECT_EQ(refusal_of(file_of({w}), limits).error.message(), "accepted");
  for (const auto& one : cases) {
    const Refusal refusal = refusal_of(one.bytes, limits);
    EXPECT_EQ(refusal.reason, one.reason) << one.expected << refusal.error;
    EXPECT_EQ(refusal.error.code(), Code::kInvalid);
    EXPECT_THAT(refusal.error.message(), HasSubstr(one.expected));
  }
}

// A file that is damaged after its check cannot make a read write outside its block.
TEST(Update, IndexesThatFallEndARead) {
  const auto index = named<std::uint32_t>("w#index", DType::kUint32, {1, 2, 0});
  const auto value = named<float>("w#value", DType::kFp32, {5, 6, 7});
  const auto update = UpdateReader::of(file_of({index, value}), flat_layout(3),
                                       {.checked = UpdateLimits::Checked{}});
  ASSERT_TRUE(update.ok()) << update.error().error;
  std::vector<float> block(2, 9);
  (*update)->read(1, block);
  EXPECT_THAT(block, ElementsAre(5, 6));
}

TEST(Update, TheEncoderRefusesBadArguments) {
  const auto layout = flat_layout(2);
  const std::vector<float> good = {1, 2}, bad = {1, NAN}, longer = {1, 2, 3};
  UpdateInfo info;
  info.samples = 1;
  EXPECT_FALSE(encode_update(info, *layout, bad).ok());
  EXPECT_FALSE(encode_update(info, *layout, longer).ok());
  EXPECT_FALSE(encode_update(info, *layout, good, {.dtype = DType::kInt8}).ok());
  EXPECT_FALSE(
      encode_update(info, *layout, good, {.encoding = Encoding::kTopK, .dtype = DType::kBf16})
          .ok());
  EXPECT_FALSE(encode_update(info, *layout, good, {.encoding = Encoding::kTopK, .keep = 0}).ok());
  EXPECT_FALSE(encode_update(info, *layout, good, {.control = bad}).ok());
  info.metrics = codec::Json::object({{"loss", NAN}});
  EXPECT_FALSE(encode_update(info, *layout, good).ok());
  info.metrics = codec::Json::object();
  info.samples = 0;
  EXPECT_FALSE(encode_update(info, *layout, good).ok());
}

}  // namespace update_test
}  // namespace varda::federated
