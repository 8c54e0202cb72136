#include "training/internal/continual.h"

#include <utility>

#include "samples/mixed.h"
#include "training/reservoir.h"
#include "training/selection.h"

namespace varda::training {
namespace {

namespace continual {

std::vector<std::size_t> all_of(const samples::Dataset& data) {
  std::vector<std::size_t> out(data.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = i;
  return out;
}

}  // namespace continual

}  // namespace

Result<std::vector<std::size_t>> reservoir_of(const Context& ctx, const samples::Dataset& data,
                                              std::size_t samples, std::size_t per_class,
                                              std::uint64_t seed) {
  TRY(const auto labels, data.labels(ctx, continual::all_of(data)));
  return reservoir(ids_of(data), labels,
                   {.samples = samples, .per_class = per_class, .seed = seed});
}

Result<std::uint64_t> add_replay(const Context& ctx, Request& request) {
  const auto& replay = request.settings.continual.replay;
  if (!replay || !request.old || request.old->size() == 0) return std::uint64_t{0};
  TRY(const auto chosen,
      reservoir_of(ctx, *request.old, static_cast<std::size_t>(replay->samples),
                   static_cast<std::size_t>(replay->per_class), request.settings.seed));
  if (chosen.empty()) return std::uint64_t{0};
  const std::uint64_t out = chosen.size();
  TRY(request.train,
      samples::mix(ctx, {{.data = request.train, .indices = continual::all_of(*request.train)},
                         {.data = request.old, .indices = chosen}}));
  return out;
}

}  // namespace varda::training
