// The second half of the simulated seeds.
import { simulationTests } from "./shard.js";

simulationTests(501, 500);
