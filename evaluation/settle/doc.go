// Package settle plays traffic.Decide in a closed loop: requests come by chance and queue at replicas, measurements are late and have noise, and
// replicas that were asked for load before they serve. It tells whether the loop comes to rest, and what that costs.
package settle
