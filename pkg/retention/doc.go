// Package retention decides which copies of volumes are kept and which may go: a pure function of the copies, the rules
// and the time, so that a dry run says exactly what a real run does.
//
// The rules are a union: a copy stays if any of them keeps it. They look at each source by itself, which is a name and a
// uid, so that what is made anew under an old name pushes nothing out, and only at good copies that Slipway made under this
// rule and that nobody pinned:
//
//   - count N keeps the newest N;
//   - age keeps what is not older, in real time;
//   - hourly, daily, weekly and monthly N keep the newest copy of each of the N latest hours, days, weeks (from Monday) or
//     months of the zone's calendar that hold one. Periods without a copy do not count, so a long pause removes nothing.
//     An hour that the clock shows twice is two hours;
//   - floor N keeps the newest N, whatever their age: default 1.
//
// Never removed, and never counted in place of a good copy: what failed, what is not ready yet or being deleted, what somebody
// pinned, what
// is foreign, what has no time, and what a skewed clock has put into the future. What is in use counts as any other, and
// is not removed while it is.
//
// A plan is implausible where any one source loses all of its good copies, or at least FewRemoved of them and more than
// MaxShare. The planner sees neither earlier plans nor earlier rules, so copies that piled up while no plan was carried
// out look to it as those of a rule that was made stricter, and somebody has to confirm both.
//
// Allowed imports: the standard library.
package retention
