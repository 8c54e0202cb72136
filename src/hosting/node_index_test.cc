#include "hosting/node_index.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace varda::hosting {
namespace node_index_test {

using Values = std::vector<std::string>;

// True: a search by the node's labels finds an object with the selector.
bool found(const Labels& selector, const Labels& labels) {
  const Values search = values_to_search(labels), at = selector_values(selector);
  return std::find(search.begin(), search.end(), at.front()) != search.end();
}

TEST(NodeIndex, ASelectorIsFoundByEveryNodeThatMatchesIt) {
  const Labels node{{"line", "x"}, {"site", "hall"}};
  for (const Labels& selector : {Labels{}, Labels{{"line", "x"}}, Labels{{"site", "hall"}}, node}) {
    EXPECT_TRUE(matches(selector, node));
    EXPECT_TRUE(found(selector, node));
  }
  EXPECT_FALSE(found({{"line", "y"}}, node));
  EXPECT_FALSE(matches({{"line", "x"}, {"site", "yard"}}, node)) << "found by its first label only";
  EXPECT_EQ(values_of(node), (Values{"line=x", "site=hall"}));
}

}  // namespace node_index_test
}  // namespace varda::hosting
