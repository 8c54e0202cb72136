// Federated learning: the speed of the rules and of the encodings.
//
// The fold of FedAvg stands beside a loop that only reads the same bytes with as many threads, from
// memory and from files in the page cache. The best of several repetitions counts. Processor
// time stands beside the time of the clock, because other programs change it less.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/check.h"
#include "federated/masked_update.h"
#include "federated/rules.h"
#include "federated/update.h"
#include "federated/weights.h"
#include "os/positional_file.h"
#include "privacy/secure_sum.h"

namespace varda::bench {
namespace {

using federated::Contribution;
using federated::LayoutPointer;
using federated::UpdateReader;

constexpr int kRepetitions = 7;

struct Seconds {
  double wall = std::numeric_limits<double>::max();
  double processor = std::numeric_limits<double>::max();  // of all threads
};

Seconds best_of(const std::function<void()>& work, int repetitions = kRepetitions) {
  Seconds best;
  for (int i = 0; i < repetitions; ++i) {
    const std::clock_t used = std::clock();
    const auto begin = std::chrono::steady_clock::now();
    work();
    best.wall = std::min(
        best.wall, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    best.processor =
        std::min(best.processor, static_cast<double>(std::clock() - used) / CLOCKS_PER_SEC);
  }
  return best;
}

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "varda-bench-XXXXXX").string();
    CHECK(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

LayoutPointer layout_of(std::size_t size) {
  return federated::Layout::make({{"w", tensor::DType::kFp32, {static_cast<std::int64_t>(size)}}})
      .value();
}

std::vector<float> values_of(std::size_t size, std::uint64_t seed) {
  std::vector<float> out(size);
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (float& value : out) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    value = static_cast<float>(static_cast<std::int64_t>(state) >> 40) * 0x1p-24f;
  }
  return out;
}

/// Updates of a number of clients, in memory or in files.
struct Clients {
  LayoutPointer layout;
  std::vector<std::unique_ptr<UpdateReader>> updates;
  std::vector<Contribution> contributions;
  std::vector<std::string> bytes;  // of the files, for the loop that reads
  std::vector<std::shared_ptr<const os::PositionalFile>> files;

  Clients(std::size_t count, std::size_t size, const Folder* folder) : layout(layout_of(size)) {
    federated::UpdateInfo info;
    info.samples = 1;
    for (std::size_t i = 0; i < count; ++i) {
      std::string file = federated::encode_update(info, *layout, values_of(size, i + 1)).value();
      if (folder != nullptr) {
        const auto path = folder->path() / std::to_string(i);
        std::ofstream(path, std::ios::binary) << file;
        updates.push_back(UpdateReader::open(os::real_file_system(), path, layout).value());
        files.push_back(os::PositionalFile::open(os::real_file_system(), path).value());
      } else {
        bytes.push_back(file);
        updates.push_back(UpdateReader::of(std::move(file), layout).value());
      }
      contributions.push_back({std::to_string(1000 + i), 1, 1.0, updates.back().get(), 1.0});
    }
  }
  double gigabytes() const {
    double out = 0;
    for (const auto& update : updates) out += static_cast<double>(update->bytes()) / 1e9;
    return out;
  }
};

std::atomic<std::uint64_t> unused;

void read_words(std::span<const std::byte> bytes) {
  const auto* at = reinterpret_cast<const std::uint64_t*>(bytes.data());
  std::uint64_t sums[16] = {};
  for (std::size_t i = 0; i + 16 <= bytes.size() / 8; i += 16)
    for (std::size_t lane = 0; lane < 16; ++lane) sums[lane] ^= at[i + lane];
  for (const std::uint64_t sum : sums) unused += sum;
}

/// Reads every byte once; files by pieces of a quarter of a megabyte.
Seconds read_seconds(const Clients& clients, std::size_t threads) {
  return best_of([&] {
    const auto run = [&](std::size_t thread) {
      std::vector<std::byte> piece(256 << 10);
      for (const std::string& bytes : clients.bytes) {
        const std::size_t share = bytes.size() / threads / 64 * 64;
        read_words(std::as_bytes(std::span(bytes.data() + thread * share, share)));
      }
      for (const auto& file : clients.files) {
        for (std::size_t at = thread * piece.size(); at + piece.size() <= file->size();
             at += threads * piece.size()) {
          CHECK(file->read(at, piece).ok());
          read_words(piece);
        }
      }
    };
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < threads; ++i) others.emplace_back(run, i);
    run(0);
  });
}

Seconds apply_seconds(const Clients& clients, const std::string& rule, std::size_t threads) {
  const auto made = federated::Rule::make(codec::Json::object({{"name", rule}}), clients.layout);
  std::vector<float> model(clients.layout->size());
  return best_of([&] {
    CHECK(made.value()
              ->apply(Context::background(), clients.contributions, model, {.threads = threads})
              .ok());
  });
}

void folds() {
  std::printf(
      "| FedAvg, 10 updates of 100 MB | threads | fold GB/s | read GB/s | share | share by "
      "processor time |\n|---|---|---|---|---|---|\n");
  const Folder folder;
  for (const Folder* place : {static_cast<const Folder*>(nullptr), &folder}) {
    const Clients clients(10, 25'000'000, place);
    for (const std::size_t threads : {std::size_t{1}, std::size_t{2}}) {
      const Seconds fold = apply_seconds(clients, "FedAvg", threads);
      const Seconds read = read_seconds(clients, threads);
      std::printf("| %s | %zu | %.1f | %.1f | %.0f %% | %.0f %% |\n",
                  place == nullptr ? "in memory" : "in files", threads,
                  clients.gigabytes() / fold.wall, clients.gigabytes() / read.wall,
                  100 * read.wall / fold.wall, 100 * read.processor / fold.processor);
      std::fflush(stdout);
    }
  }
}

void rules() {
  std::printf(
      "\n| rule, 100 updates of 1e6 values | 1 thread, s | 2 threads, s | processor s |\n"
      "|---|---|---|---|\n");
  const Clients clients(100, 1'000'000, nullptr);
  for (const char* rule :
       {"FedAvg", "FedAdam", "Median", "TrimmedMean", "Krum", "MultiKrum", "Bulyan", "RFA"}) {
    const Seconds one = apply_seconds(clients, rule, 1), two = apply_seconds(clients, rule, 2);
    std::printf("| %s | %.3f | %.3f | %.3f |\n", rule, one.wall, two.wall, one.processor);
    std::fflush(stdout);
  }
}

void encodings() {
  using federated::Encoding;
  using tensor::DType;
  constexpr std::size_t kSize = 25'000'000;
  const LayoutPointer layout = layout_of(kSize);
  const std::vector<float> delta = values_of(kSize, 1);
  federated::UpdateInfo info;
  info.samples = 1;
  const struct {
    const char* name;
    federated::EncodeOptions options;
  } cases[] = {{"dense F32", {}},
               {"dense F16", {.encoding = Encoding::kDense, .dtype = DType::kFp16}},
               {"dense BF16", {.encoding = Encoding::kDense, .dtype = DType::kBf16}},
               {"int8", {.encoding = Encoding::kInt8, .dtype = DType::kFp32}},
               {"topk 1 %", {.encoding = Encoding::kTopK, .dtype = DType::kFp32, .keep = 0.01}}};
  std::printf(
      "\n| encoding of 25e6 values, processor time | MB | smaller | encode ms | check ms | read ms "
      "|\n"
      "|---|---|---|---|---|---|\n");
  std::vector<float> block(65'536);
  for (const auto& one : cases) {
    std::string bytes;
    const Seconds encode = best_of(
        [&] { bytes = federated::encode_update(info, *layout, delta, one.options).value(); });
    const double size = static_cast<double>(bytes.size());
    std::unique_ptr<UpdateReader> reader = UpdateReader::of(bytes, layout).value();
    Seconds open;
    for (int i = 0; i < kRepetitions; ++i) {
      std::string copy = bytes;
      const Seconds again =
          best_of([&] { reader = UpdateReader::of(std::move(copy), layout).value(); }, 1);
      open.processor = std::min(open.processor, again.processor);
    }
    const Seconds read = best_of([&] {
      for (std::size_t first = 0; first < kSize; first += block.size())
        reader->read(first, std::span(block).first(std::min(block.size(), kSize - first)));
    });
    std::printf("| %s | %.1f | %.2f x | %.0f | %.0f | %.0f |\n", one.name, size / 1e6,
                4.0 * kSize / size, 1e3 * encode.processor, 1e3 * open.processor,
                1e3 * read.processor);
    std::fflush(stdout);
  }
}

/// One client's masks in a secure sum with `clients` participants.
void masks(std::size_t clients, std::size_t neighbours) {
  constexpr std::size_t kSize = 25'000'000 + federated::kMaskedTail;
  const privacy::SumTask task{.id = "bench", .length = kSize};
  privacy::SumServer server(task, {.degree = neighbours, .seed = 1});
  std::map<std::string, std::unique_ptr<privacy::SumClient>> all;
  for (std::size_t i = 0; i < clients; ++i) {
    const std::string name = "c" + std::to_string(i);
    all[name] = std::make_unique<privacy::SumClient>(name, task, privacy::SumClient::Options{});
    CHECK(server.take_keys(name, all[name]->keys()).ok());
  }
  CHECK(server.close_keys().ok());
  const Seconds exchange = best_of(
      [&] {
        for (const auto& [name, one] : all) {
          CHECK(one->take_neighbours(server.neighbours_of(name)).ok());
          CHECK(server.take_shares(name, one->shares()).ok());
        }
      },
      1);
  CHECK(server.close_shares().ok());
  for (const auto& [name, one] : all) {
    CHECK(one->take_shares(server.shares_for(name)).ok());
    CHECK(server.take_opened(name, one->opened()).ok());
  }
  CHECK(server.close_opened().ok());
  for (const auto& [name, one] : all) CHECK(one->take_members(server.members_of(name)).ok());
  std::vector<std::uint32_t> vector(kSize, 1);
  const Seconds mask = best_of([&] { CHECK(all["c0"]->add_masks(vector).ok()); }, 1);
  federated::MaskedForm form{.limit = 8, .clients = clients};
  const std::vector<float> delta = values_of(kSize - federated::kMaskedTail, 1);
  const Seconds integers = best_of([&] { CHECK(federated::to_integers(form, delta, 1).ok()); });
  std::printf(
      "\n| a client of a secure sum, 25e6 values, %zu neighbours | processor s |\n|---|---|\n"
      "| keys and shares | %.3f |\n| integers | %.2f |\n| masks | %.2f |\n",
      neighbours, exchange.processor / static_cast<double>(clients), integers.processor,
      mask.processor);
}

/// All tables, or those with these names.
void run(std::span<char* const> names) {
  const auto wanted = [&](std::string_view name) {
    return names.empty() ||
           std::any_of(names.begin(), names.end(), [&](const char* one) { return one == name; });
  };
  if (wanted("folds")) folds();
  if (wanted("rules")) rules();
  if (wanted("encodings")) encodings();
  if (wanted("masks")) masks(12, 10);
}

}  // namespace
}  // namespace varda::bench

int main(int argc, char** argv) {
  varda::bench::run(std::span(argv + 1, static_cast<std::size_t>(argc - 1)));
}
