#include "artifact/internal/source_history.h"

#include <algorithm>

#include "net/url.h"

namespace varda::artifact {
namespace {

constexpr auto kFailedFor = std::chrono::minutes(5);
constexpr auto kWrongFor = std::chrono::hours(1);
constexpr std::size_t kMarksMax = 1024;

std::string origin_of(const std::string& url) {
  const auto parsed = net::Url::parse(url);
  return parsed.ok() ? parsed->origin() : url;
}

}  // namespace

int SourceHistory::weight_of(const std::string& url) const {
  int weight = 0;
  for (const std::string& name : {url, origin_of(url)}) {
    const auto mark = marks_.find(name);
    if (mark != marks_.end() && clock_.now() < mark->second.until)
      weight = std::max(weight, mark->second.weight);
  }
  return weight;
}

std::vector<std::string> SourceHistory::order(const std::vector<std::string>& urls) const {
  std::vector<std::string> out;
  for (const std::string& url : urls)
    if (std::find(out.begin(), out.end(), url) == out.end()) out.push_back(url);
  const MutexLock lock(mutex_);
  std::map<std::string, int> weights;
  for (const std::string& url : out) weights[url] = weight_of(url);
  std::stable_sort(out.begin(), out.end(), [&](const std::string& a, const std::string& b) {
    return weights[a] < weights[b];
  });
  return out;
}

bool SourceHistory::is_healthy(const std::string& url) const {
  const MutexLock lock(mutex_);
  return weight_of(url) == 0;
}

std::chrono::seconds SourceHistory::closed_for(const std::string& url) const {
  const MutexLock lock(mutex_);
  const auto mark = marks_.find(origin_of(url));
  if (mark == marks_.end() || mark->second.closed_until <= clock_.now())
    return std::chrono::seconds(0);
  return std::chrono::ceil<std::chrono::seconds>(mark->second.closed_until - clock_.now());
}

void SourceHistory::failed(const std::string& url, Trouble trouble,
                           std::chrono::seconds retry_after) {
  const MutexLock lock(mutex_);
  forget_old();
  const SteadyTime now = clock_.now();
  Mark& mark = marks_[trouble == Trouble::kNoResponse ? origin_of(url) : url];
  mark.weight = trouble == Trouble::kBroke ? 1 : trouble == Trouble::kWrong ? 3 : 2;
  mark.until = now + (trouble == Trouble::kWrong ? Duration(kWrongFor) : Duration(kFailedFor));
  if (retry_after.count() <= 0) return;
  Mark& closed = marks_[origin_of(url)];
  closed.closed_until = now + retry_after;
  closed.until = std::max(closed.until, closed.closed_until);
}

void SourceHistory::worked(const std::string& url) {
  const MutexLock lock(mutex_);
  marks_.erase(url);
  marks_.erase(origin_of(url));
}

void SourceHistory::forget_old() {
  if (marks_.size() < kMarksMax) return;
  const SteadyTime now = clock_.now();
  std::erase_if(marks_, [now](const auto& mark) { return mark.second.until <= now; });
  if (marks_.size() >= kMarksMax)
    marks_.clear();  // with so many troubled sources the order means little
}

}  // namespace varda::artifact
