#include "incremental/internal/tally.h"

#include <algorithm>

namespace varda::incremental {
namespace {

bool same_epoch(const Counters& mark, const Counters& reading) {
  return mark.since == reading.since && mark.answers <= reading.answers &&
         mark.failures <= reading.failures && mark.scores.size() <= reading.scores.size();
}

void add(Counters& sum, const Counters& reading, const Counters& mark) {
  const auto grown = [](std::int64_t now, std::int64_t then) {
    return std::max<std::int64_t>(0, now - then);
  };
  sum.answers += grown(reading.answers, mark.answers);
  sum.failures += grown(reading.failures, mark.failures);
  sum.hard += grown(reading.hard, mark.hard);
  sum.agreed += grown(reading.agreed, mark.agreed);
  sum.base_answers += grown(reading.base_answers, mark.base_answers);
  sum.base_hard += grown(reading.base_hard, mark.base_hard);
  if (sum.scores.size() < reading.scores.size()) sum.scores.resize(reading.scores.size());
  for (std::size_t i = 0; i < reading.scores.size(); ++i)
    sum.scores[i] += grown(reading.scores[i], i < mark.scores.size() ? mark.scores[i] : 0);
}

}  // namespace

Counters growth(const Tally& tally, const Readings& readings) {
  static const Counters zero;
  Counters out = tally.carried;
  for (const auto& [node, reading] : readings) {
    const auto mark = tally.marks.find(node);
    const bool known = mark != tally.marks.end() && same_epoch(mark->second, reading);
    add(out, reading, known ? mark->second : zero);
  }
  return out;
}

void restart(Tally& tally, const Readings& readings) {
  tally.carried = {};
  for (const auto& [node, reading] : readings) tally.marks[node] = reading;
  while (tally.marks.size() > State::kTallyNodesMax) {
    const auto absent = std::find_if(tally.marks.begin(), tally.marks.end(), [&](const auto& mark) {
      return !readings.contains(mark.first);
    });
    tally.marks.erase(absent != tally.marks.end() ? absent : tally.marks.begin());
  }
}

void absorb(Tally& tally, const Readings& readings) {
  Counters sum = growth(tally, readings);
  restart(tally, readings);
  tally.carried = std::move(sum);
}

bool has_new_epoch(const Tally& tally, const Readings& readings) {
  return std::any_of(readings.begin(), readings.end(), [&](const auto& reading) {
    const auto mark = tally.marks.find(reading.first);
    return mark != tally.marks.end() && !same_epoch(mark->second, reading.second);
  });
}

}  // namespace varda::incremental
