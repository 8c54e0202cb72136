#include "os/testing/crash_campaign.h"

#include <cstdio>
#include <cstdlib>

namespace varda::os::testing {
namespace {

// Number of subsets checked per crash point with pending changes.
constexpr std::uint64_t kSubsets = 3;

std::optional<std::uint64_t> number_from(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  return std::strtoull(text, nullptr, 10);
}

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

CrashCampaign::CrashCampaign(std::string command, std::uint64_t states_default)
    : command_(std::move(command)),
      wanted_(number_from("VARDA_CRASH_STATES").value_or(states_default)),
      seed_(number_from("VARDA_CRASH_SEED").value_or(1)),
      only_point_(number_from("VARDA_CRASH_POINT")),
      only_subset_(number_from("VARDA_CRASH_SUBSET")),
      begin_(system_clock().now()),
      reported_at_(begin_) {
  if (const auto limit = number_from("VARDA_SOAK_SECONDS"))
    deadline_ = begin_ + std::chrono::seconds(*limit);
}

bool CrashCampaign::over() const {
  return !failure_.empty() || states_ >= wanted_ ||
         (deadline_ && system_clock().now() >= *deadline_);
}

bool CrashCampaign::next_seed() {
  if (over() || (only_point_ && started_)) {
    progress();
    return false;
  }
  if (started_) ++seed_;
  started_ = true;
  points_ = 0;
  last_changes_ = last_acknowledged_ = UINT64_MAX;
  if (system_clock().now() - reported_at_ >= std::chrono::seconds(10)) progress();
  return true;
}

void CrashCampaign::progress() {
  reported_at_ = system_clock().now();
  const double spent = seconds(reported_at_ - begin_);
  std::fprintf(stderr, "%s: %llu crash states up to seed %llu in %.0f s, %.0f/s\n",
               command_.c_str(), static_cast<unsigned long long>(states_),
               static_cast<unsigned long long>(seed_), spent,
               static_cast<double>(states_) / std::max(spent, 1e-3));
}

void CrashCampaign::point(const CrashingFileSystem& fs, std::uint64_t acknowledged,
                          const Check& check) {
  if (over() || (fs.changes() == last_changes_ && acknowledged == last_acknowledged_)) return;
  last_changes_ = fs.changes();
  last_acknowledged_ = acknowledged;
  const std::uint64_t point = points_++;
  if (only_point_ && point != *only_point_) return;
  const std::uint64_t subsets = fs.pending() ? kSubsets : 1;
  for (std::uint64_t subset = 0; subset < subsets; ++subset) {
    if (only_subset_ && subset != *only_subset_) continue;
    const auto rng = seeded_rng((seed_ * 1'000'003 + point) * 31 + subset);
    const auto left = fs.crashed(rng->next());
    ++states_;
    std::string wrong = check(*left, *rng);
    if (wrong.empty()) continue;
    failure_ = wrong + "\n  again: VARDA_CRASH_SEED=" + std::to_string(seed_) +
               " VARDA_CRASH_POINT=" + std::to_string(point) +
               " VARDA_CRASH_SUBSET=" + std::to_string(subset) + " " + command_;
    return;
  }
}

}  // namespace varda::os::testing
