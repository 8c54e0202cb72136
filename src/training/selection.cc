#include "training/selection.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "codec/digest.h"
#include "codec/json.h"

namespace varda::training {
namespace {

namespace selection {

using codec::Json;

constexpr std::int64_t kVersion = 1;
// kSamplesMax samples in base64, and room for the rounds' other members.
constexpr std::uint64_t kLedgerBytesMax = std::uint64_t{128} << 20;

std::uint64_t first_bytes(const codec::Sha256& digest) {
  std::uint64_t out = 0;
  for (int i = 0; i < 8; ++i)
    out = out << 8 | static_cast<std::uint8_t>(digest.bytes[static_cast<std::size_t>(i)]);
  return out;
}

std::string big_endian(SampleId id) {
  std::string out(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) out[i] = static_cast<char>(id >> (56 - 8 * i) & 0xff);
  return out;
}

std::string text_of(const std::vector<SampleId>& ids) {
  std::string bytes;
  bytes.reserve(ids.size() * 8);
  for (const SampleId id : ids) bytes += big_endian(id);
  return codec::base64(bytes);
}

Error damaged(const std::string& what) {
  return Error(Code::kCorrupt, "the ledger is damaged: " + what);
}

Result<std::vector<SampleId>> ids_from(const Json& json, std::string_view member) {
  const auto decoded = codec::unbase64(json[member].as_string());
  if (!json[member].is_string() || !decoded.ok() || decoded->size() % 8 != 0)
    return damaged(std::string(member) + " is no list of samples");
  const std::string& bytes = *decoded;
  std::vector<SampleId> out;
  out.reserve(bytes.size() / 8);
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    SampleId id = 0;
    for (std::size_t i = 0; i < 8; ++i) id = id << 8 | static_cast<std::uint8_t>(bytes[at + i]);
    if (!out.empty() && id <= out.back()) return damaged(std::string(member) + " has no order");
    out.push_back(id);
  }
  return out;
}

Result<Ledger> read_ledger(os::FileSystem& fs, const os::Path& directory) {
  const os::Path path = directory / kLedgerFile;
  TRY(const auto info, fs.stat(path));
  if (!info) return Ledger{};
  TRY(const std::string bytes, os::read_file(fs, path, kLedgerBytesMax));
  auto out = Ledger::decode(bytes);
  if (!out.ok())
    return out.error().context(path.string() +
                               " (without the file, all samples count as new again)");
  return out;
}

using Ids = std::unordered_set<SampleId>;

void add(Ids& to, const std::vector<SampleId>& ids) { to.insert(ids.begin(), ids.end()); }

std::vector<std::size_t> indices_of(std::span<const SampleId> present, const Ids& wanted) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < present.size(); ++i)
    if (wanted.contains(present[i])) out.push_back(i);
  return out;
}

/// Samples that trained in consumed rounds.
std::vector<std::size_t> old_of(const Ledger& ledger, const IncrementalTask& task,
                                std::span<const SampleId> present) {
  Ids old;
  for (const LedgerRound& round : ledger.rounds)
    if (round.round != task.round && task.consumed.contains(round.round) &&
        !task.refused.contains(round.round) && !round.refused)
      add(old, round.train);
  return indices_of(present, old);
}

Selection selection_of(const Ledger& ledger, const LedgerRound& round, const IncrementalTask& task,
                       std::span<const SampleId> present) {
  Ids train, evaluate;
  add(train, round.train);
  add(evaluate, round.evaluate);
  return {.train = indices_of(present, train),
          .evaluate = indices_of(present, evaluate),
          .old = old_of(ledger, task, present)};
}

bool is_complete(const LedgerRound& round, const Selection& found) {
  return found.train.size() == round.train.size() && found.evaluate.size() == round.evaluate.size();
}

std::uint64_t draw(SampleId id, std::uint64_t seed) {
  return first_bytes(codec::Sha256::of(std::to_string(seed) + ":" + big_endian(id)));
}

LedgerRound new_round(const IncrementalTask& task, const Ids& used,
                      std::span<const SampleId> present) {
  LedgerRound out{.round = task.round,
                  .attempt = task.attempt,
                  .train_probability = task.train_probability,
                  .seed = task.seed,
                  .train = {},
                  .evaluate = {}};
  for (const SampleId id : present) {
    if (used.contains(id)) continue;
    (trains(id, task.seed, task.train_probability) ? out.train : out.evaluate).push_back(id);
  }
  for (auto* ids : {&out.train, &out.evaluate}) {
    std::ranges::sort(*ids);
    ids->erase(std::unique(ids->begin(), ids->end()), ids->end());
  }
  if (out.train.empty() && !out.evaluate.empty()) {
    // The sample with the smallest draw would be the first to train with a larger probability.
    const auto next = std::ranges::min_element(
        out.evaluate, {}, [&](SampleId id) { return std::pair(draw(id, task.seed), id); });
    out.train.push_back(*next);
    out.evaluate.erase(next);
  }
  return out;
}

}  // namespace selection

}  // namespace

SampleId sample_id(std::string_view place) {
  return selection::first_bytes(codec::Sha256::of(place));
}

std::vector<SampleId> ids_of(const samples::Dataset& data) {
  std::vector<SampleId> out;
  out.reserve(data.size());
  for (std::size_t i = 0; i < data.size(); ++i) out.push_back(sample_id(data.place(i)));
  return out;
}

bool trains(SampleId id, std::uint64_t seed, double probability) {
  // 53 bits are exact as a double.
  return static_cast<double>(selection::draw(id, seed) >> 11) < std::ldexp(probability, 53);
}

std::size_t Ledger::samples() const {
  std::size_t out = 0;
  for (const LedgerRound& round : rounds) out += round.train.size() + round.evaluate.size();
  return out;
}

std::string Ledger::encode() const {
  using codec::Json;
  Json list = Json::array();
  for (const LedgerRound& round : rounds) {
    Json one = Json::object({{"round", round.round},
                             {"attempt", round.attempt},
                             {"trainProb", round.train_probability},
                             {"seed", std::to_string(round.seed)},
                             {"train", selection::text_of(round.train)},
                             {"evaluate", selection::text_of(round.evaluate)}});
    if (round.refused) one.set("refused", true);
    list.push_back(std::move(one));
  }
  const std::string text = codec::write_json(list);
  return codec::write_json(Json::object({{"version", selection::kVersion},
                                         {"sha256", codec::Sha256::of(text).hex()},
                                         {"rounds", std::move(list)}})) +
         "\n";
}

Result<Ledger> Ledger::decode(std::string_view bytes) {
  using codec::Json;
  using selection::damaged;
  const auto json = codec::parse_json(bytes);
  if (!json.ok()) return damaged(json.error().message());
  if ((*json)["version"].as_integer() != selection::kVersion)
    return damaged("another version than " + std::to_string(selection::kVersion));
  const Json& list = (*json)["rounds"];
  if (!list.is_array()) return damaged("no rounds");
  if ((*json)["sha256"].as_string() != codec::Sha256::of(codec::write_json(list)).hex())
    return damaged("another digest");
  Ledger out;
  std::size_t samples = 0;
  for (const Json& one : list.as_array()) {
    LedgerRound round{.round = one["round"].as_integer(-1),
                      .attempt = one["attempt"].as_integer(-1),
                      .train_probability = one["trainProb"].as_double(-1),
                      .seed = 0,
                      .train = {},
                      .evaluate = {}};
    if (round.round < 1 || round.attempt < 1 ||
        (!out.rounds.empty() && round.round <= out.rounds.back().round))
      return damaged("the rounds have no order");
    if (!(round.train_probability > 0 && round.train_probability <= 1))
      return damaged("trainProb is out of range");
    const auto seed = parse_integer<std::uint64_t>(one["seed"].as_string());
    if (!seed) return damaged("no seed");
    round.seed = *seed;
    TRY(round.train, selection::ids_from(one, "train"));
    TRY(round.evaluate, selection::ids_from(one, "evaluate"));
    round.refused = one["refused"].as_bool();
    samples += round.train.size() + round.evaluate.size();
    if (samples > kSamplesMax) return damaged("too many samples");
    out.rounds.push_back(std::move(round));
  }
  return out;
}

Result<Selection> select(os::FileSystem& fs, const os::Path& directory, const IncrementalTask& task,
                         std::span<const SampleId> present) {
  using namespace selection;
  if (task.consumed.contains(task.round) || task.refused.contains(task.round))
    return Error(Code::kInvalid, "round " + std::to_string(task.round) +
                                     " is over; a new round has a number of its own");
  TRY(const auto info, fs.stat(directory));
  if (!info) {
    TRY_VOID(fs.make_directories(directory));
    TRY_VOID(fs.sync_directory(directory.parent_path()));
  }
  TRY_VOID(os::remove_leftovers(fs, directory));
  TRY(Ledger ledger, read_ledger(fs, directory));
  // An operator that lost its lease may still write an old assignment.
  if (!ledger.rounds.empty() && ledger.rounds.back().round > task.round)
    return Error(Code::kInvalid, "round " + std::to_string(task.round) + " is over: round " +
                                     std::to_string(ledger.rounds.back().round) + " has begun");
  const auto is_current = [&](const LedgerRound& one) { return one.round == task.round; };
  if (const auto found = std::ranges::find_if(ledger.rounds, is_current);
      found != ledger.rounds.end() && found->attempt == task.attempt && found->seed == task.seed &&
      found->train_probability == task.train_probability) {
    const Selection out = selection_of(ledger, *found, task, present);
    if (is_complete(*found, out)) return out;
    log::warn("samples of the round are gone, selecting again",
              {{"round", task.round},
               {"selected", found->train.size() + found->evaluate.size()},
               {"present", out.train.size() + out.evaluate.size()}});
  }
  std::erase_if(ledger.rounds, [&](const LedgerRound& one) {
    return is_current(one) ||
           (!task.consumed.contains(one.round) && !task.refused.contains(one.round));
  });
  for (LedgerRound& one : ledger.rounds)
    if (task.refused.contains(one.round)) one.refused = true;
  Ids used;
  for (const LedgerRound& one : ledger.rounds) {
    add(used, one.train);
    add(used, one.evaluate);
  }
  LedgerRound chosen = new_round(task, used, present);
  if (chosen.train.empty())
    return Selection{.train = {}, .evaluate = {}, .old = old_of(ledger, task, present)};
  const auto after = std::ranges::upper_bound(ledger.rounds, chosen.round, {}, &LedgerRound::round);
  const auto place = ledger.rounds.insert(after, std::move(chosen));
  if (ledger.samples() > Ledger::kSamplesMax)
    return Error(Code::kExhausted, "the ledger has more than " +
                                       std::to_string(Ledger::kSamplesMax) +
                                       " samples; remove used samples from the dataset, then the "
                                       "file " +
                                       (directory / kLedgerFile).string());
  TRY_VOID(os::write_file_atomically(fs, directory / kLedgerFile, ledger.encode()));
  return selection_of(ledger, *place, task, present);
}

Result<Selection> recall(os::FileSystem& fs, const os::Path& directory, const IncrementalTask& task,
                         std::span<const SampleId> present) {
  TRY(const Ledger ledger, selection::read_ledger(fs, directory));
  const auto found = std::ranges::find(ledger.rounds, task.round, &LedgerRound::round);
  if (found == ledger.rounds.end())
    return Error(Code::kNotFound,
                 "round " + std::to_string(task.round) + " has selected no samples");
  return selection::selection_of(ledger, *found, task, present);
}

}  // namespace varda::training
